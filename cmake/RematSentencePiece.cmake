# The module through which remat/data reaches SentencePiece: the only target that
# links it (remat/data/sentencepiece_library.h says why).
include(GNUInstallDirs)
set(remat_module_dir ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_LIBDIR}/remat)
add_library(remat_sentencepiece MODULE ${PROJECT_SOURCE_DIR}/remat/data/sentencepiece/module.cpp)
target_include_directories(remat_sentencepiece PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(remat_sentencepiece PRIVATE PkgConfig::SentencePiece)
set_target_properties(remat_sentencepiece PROPERTIES PREFIX ""
  LIBRARY_OUTPUT_DIRECTORY ${remat_module_dir})
install(TARGETS remat_sentencepiece LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/remat
  COMPONENT library)
target_compile_definitions(remat_data PRIVATE
  REMAT_LIBDIR="${CMAKE_INSTALL_LIBDIR}" REMAT_FULL_LIBDIR="${CMAKE_INSTALL_FULL_LIBDIR}"
  REMAT_BUILD_MODULE_DIR="${remat_module_dir}")
add_dependencies(remat_data remat_sentencepiece)
