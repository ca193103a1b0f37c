# Sources of remat/kernels for one instruction set, chosen at run time.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  file(GLOB avx2_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/remat/kernels/*_avx2.cpp)
  if(avx2_sources)
    target_sources(remat_kernels PRIVATE ${avx2_sources})
    set_source_files_properties(${avx2_sources} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma")
    target_compile_definitions(remat_kernels PRIVATE REMAT_HAVE_AVX2)
  endif()
endif()

# at::parallel_for is a header: parallel only where it is compiled with OpenMP.
remat_require(OpenMP DEBIAN g++ COMPONENTS CXX)
target_link_libraries(remat_kernels PRIVATE OpenMP::OpenMP_CXX)
set_property(GLOBAL APPEND PROPERTY REMAT_LINK_kernels OpenMP::OpenMP_CXX)
