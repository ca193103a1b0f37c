# remat_precompile(TARGET): in builds with REMAT_PRECOMPILE the headers of libtorch and
# of the test libraries are parsed once instead of once a file, which is a third of the
# time. The release build does without: there every file names all that it needs.
option(REMAT_PRECOMPILE "Parse the headers of libtorch once, for the sanitizers' builds" OFF)

if(REMAT_PRECOMPILE)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled/owner.cpp
    CONTENT "int main() { return 0; }\n")
  # GCC keeps code for programs and code for libraries apart (-fPIE, -fPIC).
  add_library(remat_precompiled_library OBJECT EXCLUDE_FROM_ALL
    ${PROJECT_BINARY_DIR}/precompiled/owner.cpp)
  target_link_libraries(remat_precompiled_library PRIVATE Libtorch::Libtorch)
  target_precompile_headers(remat_precompiled_library PRIVATE <ATen/ATen.h>)
  if(CCACHE_PROGRAM AND CMAKE_CXX_COMPILER_LAUNCHER STREQUAL CCACHE_PROGRAM)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  endif()
endif()

# Of a component or of its tests, which are an executable.
function(remat_precompile target)
  if(NOT REMAT_PRECOMPILE)
    return()
  endif()
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL EXECUTABLE)
    target_precompile_headers(${target} REUSE_FROM remat_precompiled_library)
    return()
  endif()
  if(NOT TARGET remat_precompiled_tests)
    add_executable(remat_precompiled_tests EXCLUDE_FROM_ALL
      ${PROJECT_BINARY_DIR}/precompiled/owner.cpp)
    target_link_libraries(remat_precompiled_tests PRIVATE Libtorch::Libtorch
      nlohmann_json::nlohmann_json GTest::gmock GTest::gtest)
    target_precompile_headers(remat_precompiled_tests PRIVATE <ATen/ATen.h>
      <torch/csrc/autograd/autograd.h> <gmock/gmock.h> <gtest/gtest.h> <rapidcheck.h>
      <nlohmann/json.hpp>)
  endif()
  target_precompile_headers(${target} REUSE_FROM remat_precompiled_tests)
endfunction()
