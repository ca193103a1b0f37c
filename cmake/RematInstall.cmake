# Installs the program, the components with their public headers, the CMake package
# (one target file a component, so that finding one asks only for what it needs) and
# remat.pc for the runtime.
include(CMakePackageConfigHelpers)

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/remat)
get_property(components GLOBAL PROPERTY REMAT_COMPONENTS)
get_property(program GLOBAL PROPERTY REMAT_PROGRAM)
get_property(program_component GLOBAL PROPERTY REMAT_PROGRAM_COMPONENT)

if(program)
  install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  list(REMOVE_ITEM components ${program_component})
endif()

set(REMAT_PACKAGE_TABLE "")
foreach(component IN LISTS components)
  install(TARGETS remat_${component} EXPORT remat-${component}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
  install(EXPORT remat-${component} NAMESPACE remat:: DESTINATION ${config_dir}
    COMPONENT library)
  get_property(headers GLOBAL PROPERTY REMAT_HEADERS_${component})
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/remat/${component}
    COMPONENT library)
  get_property(depends GLOBAL PROPERTY REMAT_DEPENDS_${component})
  get_property(link GLOBAL PROPERTY REMAT_LINK_${component})
  string(APPEND REMAT_PACKAGE_TABLE
    "set(remat_depends_${component} \"${depends}\")\n"
    "set(remat_link_${component} \"${link}\")\n")
endforeach()
set(REMAT_PACKAGE_COMPONENTS "${components}")
install(FILES remat/remat.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/remat COMPONENT library)

configure_package_config_file(cmake/remat-config.cmake.in
  ${PROJECT_BINARY_DIR}/package/remat-config.cmake INSTALL_DESTINATION ${config_dir}
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the API.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/remat-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/package/remat-config.cmake
  ${PROJECT_BINARY_DIR}/package/remat-config-version.cmake
  cmake/FindLibtorch.cmake
  DESTINATION ${config_dir} COMPONENT library)

# remat.pc: the runtime and what it stands on, users before what they use.
set(needed runtime)
set(libraries "")
list(REVERSE components)
foreach(component IN LISTS components)
  if(component IN_LIST needed)
    string(APPEND libraries " -lremat_${component}")
    get_property(depends GLOBAL PROPERTY REMAT_DEPENDS_${component})
    list(APPEND needed ${depends})
  endif()
endforeach()
if(BUILD_SHARED_LIBS)
  set(libraries " -lremat_runtime -lremat_base")
endif()
set(REMAT_PC_LIBRARIES "${libraries}")
# -isystem with a directory that the compiler searches anyway would reorder it.
set(REMAT_PC_INCLUDES "")
foreach(directory ${LIBTORCH_API_INCLUDE_DIR} ${LIBTORCH_INCLUDE_DIR})
  if(NOT directory IN_LIST CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES)
    string(APPEND REMAT_PC_INCLUDES " -isystem ${directory}")
  endif()
endforeach()
cmake_path(GET LIBTORCH_torch_cpu_LIBRARY PARENT_PATH REMAT_PC_LIBTORCH_DIR)
# Relative to the file itself, so that the installed tree may be moved.
file(RELATIVE_PATH REMAT_PC_PREFIX
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" REMAT_PC_PREFIX "${REMAT_PC_PREFIX}")
configure_file(cmake/remat.pc.in ${PROJECT_BINARY_DIR}/package/remat.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/remat.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
