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
  get_target_property(libraries remat_${component} LINK_LIBRARIES)
  if(Libtorch::Libtorch IN_LIST libraries)
    remat_precompile(${target})
  endif()
  add_test(NAME ${component} COMMAND ${target})
  # Two pools of threads that spin on the same cores slow each other down.
  set_tests_properties(${component} PROPERTIES TIMEOUT 1800
    ENVIRONMENT OMP_WAIT_POLICY=passive)
endforeach()
foreach(component store runtime)
  target_link_libraries(remat_${component}_tests PRIVATE remat_software_device)
endforeach()
# The tests of models and of the runtime read fixtures, count live bytes, and
# hold estimates against them.
foreach(pair nn:io nn:estimate runtime:memory)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 component)
  list(GET pair 1 extra)
  if(TARGET remat_${component}_tests)
    target_link_libraries(remat_${component}_tests PRIVATE remat_${extra})
  endif()
endforeach()

# A second opinion for the planner, where GLPK is.
find_path(GLPK_INCLUDE_DIR glpk.h)
find_library(GLPK_LIBRARY glpk)
mark_as_advanced(GLPK_INCLUDE_DIR GLPK_LIBRARY)
if(GLPK_INCLUDE_DIR AND GLPK_LIBRARY)
  target_sources(remat_plan_tests PRIVATE ${PROJECT_SOURCE_DIR}/tests/plan/milp/milp_test.cpp)
  target_link_libraries(remat_plan_tests PRIVATE ${GLPK_LIBRARY})
else()
  message(STATUS "the planner's tests with GLPK are left out; on Debian: apt-get install libglpk-dev")
endif()

# layers: each #include "remat/..." against the declared dependencies, and what
# public headers include.
set(layers "")
set(headers remat/remat.h)
get_property(left_out GLOBAL PROPERTY REMAT_COMPONENTS_LEFT_OUT)
foreach(component IN LISTS components left_out)
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

# mixed: a process that has Python's libtorch too, whichever was there first.
# Debian's own, which has Debian's torch.
find_program(PYTHON3_PROGRAM python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(PYTHON3_PROGRAM AND NOT REMAT_SANITIZE)
  add_library(remat_mixed MODULE ${PROJECT_SOURCE_DIR}/tests/mixed/region_in_python.cpp)
  target_link_libraries(remat_mixed PRIVATE remat_runtime)
  foreach(order python-first remat-first)
    add_test(NAME mixed.${order} COMMAND ${PYTHON3_PROGRAM}
      ${PROJECT_SOURCE_DIR}/tests/mixed/mixed_process.py $<TARGET_FILE:remat_mixed> ${order})
    set_tests_properties(mixed.${order} PROPERTIES SKIP_RETURN_CODE 77
      ENVIRONMENT OMP_WAIT_POLICY=passive)
  endforeach()
endif()

# examples: what docs/PAGE.md shows is compiled and runs.
foreach(page regions graphs offload memory)
  add_executable(remat_example_${page} ${PROJECT_SOURCE_DIR}/examples/${page}/${page}.cpp)
  target_link_libraries(remat_example_${page} PRIVATE remat_runtime remat_profile)
  add_test(NAME examples.${page} COMMAND remat_example_${page})
  set_tests_properties(examples.${page} PROPERTIES ENVIRONMENT OMP_WAIT_POLICY=passive)
endforeach()
foreach(pair regions:examples/regions/regions.cpp graphs:examples/graphs/graphs.cpp
             offload:examples/offload/offload.cpp memory:examples/memory/memory.cpp
             distributed:tests/distributed/example_test.cpp)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 document)
  list(GET pair 1 example)
  add_test(NAME docs.${document} COMMAND ${CMAKE_COMMAND}
    -DDOCUMENT=${PROJECT_SOURCE_DIR}/docs/${document}.md
    -DEXAMPLE=${PROJECT_SOURCE_DIR}/${example}
    -P ${PROJECT_SOURCE_DIR}/cmake/check_snippets.cmake)
endforeach()
