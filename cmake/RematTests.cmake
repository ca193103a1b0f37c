# One test binary a component, from tests/NAME/*_test.cpp; further, the layer check,
# every public header compiled alone, and the purity of the pure components.
remat_require(GTest DEBIAN "libgtest-dev libgmock-dev")
find_library(RAPIDCHECK_LIBRARY rapidcheck)
if(NOT RAPIDCHECK_LIBRARY)
  message(FATAL_ERROR "rapidcheck was not found. On Debian: apt-get install librapidcheck-dev\n"
    "(scripts/setup installs everything that remat is built with)")
endif()

# A device of software, for what runs beside the host.
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/device/*.cpp)
add_library(remat_software_device OBJECT ${sources})
target_include_directories(remat_software_device PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(remat_software_device PRIVATE Libtorch::Libtorch)

get_property(components GLOBAL PROPERTY REMAT_COMPONENTS)
foreach(component IN LISTS components)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${component}/*.cpp)
  if(NOT sources)
    continue()
  endif()
  set(target remat_${component}_tests)
  add_executable(${target} ${sources})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE
    REMAT_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden")
  target_link_libraries(${target} PRIVATE remat_${component} ${RAPIDCHECK_LIBRARY}
    nlohmann_json::nlohmann_json GTest::gmock GTest::gtest GTest::gtest_main)
  add_test(NAME ${component} COMMAND ${target})
  # Two pools of threads that spin on the same cores slow each other down.
  set_tests_properties(${component} PROPERTIES TIMEOUT 1800
    ENVIRONMENT OMP_WAIT_POLICY=passive)
endforeach()
foreach(component store runtime)
  target_link_libraries(remat_${component}_tests PRIVATE remat_software_device)
endforeach()
# The tests of models and of the runtime read fixtures, and count live bytes.
foreach(pair nn:io runtime:memory)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 component)
  list(GET pair 1 extra)
  if(TARGET remat_${component}_tests)
    target_link_libraries(remat_${component}_tests PRIVATE remat_${extra})
  endif()
endforeach()

# layers: each #include "remat/..." against the declared dependencies, and what
# public headers include.
set(layers "")
set(headers remat/remat.h)
foreach(component IN LISTS components)
  get_property(depends GLOBAL PROPERTY REMAT_DEPENDS_${component})
  list(JOIN depends "," depends)
  list(APPEND layers "${component}=${depends}")
  get_property(component_headers GLOBAL PROPERTY REMAT_HEADERS_${component})
  list(APPEND headers ${component_headers})
endforeach()
list(JOIN layers ":" layers_argument)
list(JOIN headers ":" headers_argument)
add_test(NAME layers COMMAND ${CMAKE_COMMAND} -DLAYERS=${layers_argument}
  -DHEADERS=${headers_argument} -DSOURCE_DIR=${PROJECT_SOURCE_DIR}
  -P ${PROJECT_SOURCE_DIR}/cmake/check_layers.cmake)

# headers: each public header compiles as the only include of a file of its own.
set(header_sources "")
foreach(header IN LISTS headers)
  string(MAKE_C_IDENTIFIER ${header} identifier)
  set(file ${PROJECT_BINARY_DIR}/headers/${identifier}.cpp)
  file(CONFIGURE OUTPUT ${file} CONTENT "#include \"${header}\"\n")
  list(APPEND header_sources ${file})
endforeach()
add_library(remat_headers OBJECT ${header_sources})
list(TRANSFORM components PREPEND remat_ OUTPUT_VARIABLE libraries)
target_link_libraries(remat_headers PRIVATE ${libraries})
target_compile_options(remat_headers PRIVATE -O0)

# purity: a libtorch header in a pure component must not compile.
foreach(header ATen/ATen.h ATen/core/Tensor.h c10/core/Device.h torch/types.h)
  string(MAKE_C_IDENTIFIER ${header} identifier)
  set(file ${PROJECT_BINARY_DIR}/purity/${identifier}.cpp)
  file(CONFIGURE OUTPUT ${file} CONTENT "#include <${header}>\n")
  add_test(NAME purity.${identifier} COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only -Wfatal-errors
    -I${PROJECT_SOURCE_DIR}/cmake/no_libtorch -isystem ${LIBTORCH_API_INCLUDE_DIR} ${file})
  set_tests_properties(purity.${identifier} PROPERTIES
    PASS_REGULAR_EXPRESSION "must not include a libtorch header")
endforeach()

# package and cli: end to end, through scripts.
include(${PROJECT_SOURCE_DIR}/tests/package/package_tests.cmake OPTIONAL)
include(${PROJECT_SOURCE_DIR}/tests/cli/cli_tests.cmake OPTIONAL)

# examples: what documents show is compiled and runs.
foreach(name regions offload)
  set(example ${PROJECT_SOURCE_DIR}/examples/${name}/${name}.cpp)
  add_executable(remat_example_${name} ${example})
  target_link_libraries(remat_example_${name} PRIVATE remat_runtime)
  add_test(NAME examples.${name} COMMAND remat_example_${name})
  set_tests_properties(examples.${name} PROPERTIES ENVIRONMENT OMP_WAIT_POLICY=passive)
  add_test(NAME docs.${name} COMMAND ${CMAKE_COMMAND}
    -DDOCUMENT=${PROJECT_SOURCE_DIR}/docs/${name}.md -DEXAMPLE=${example}
    -P ${PROJECT_SOURCE_DIR}/cmake/check_snippets.cmake)
endforeach()
