# remat_component(NAME [PURE] [ONLY_WITH target] [DEPENDS component...] [LINK target...]
#                 [HEADER_ONLY target...] [PUBLIC header...])
#
# The library remat_NAME (remat::NAME) of all sources in remat/NAME and, where it is
# there, remat/NAME/solvers. DEPENDS names the components whose headers it may include; the layer check compares every
# #include with it. PURE: any libtorch header is a compile error. LINK: libraries
# its users need as well. HEADER_ONLY: used in sources only, never in our public
# headers. ONLY_WITH: without this target the component and its tests are left out.
# PUBLIC: the headers, without ".h", that are installed; the layer check
# holds them to other public headers and ATen/core/Tensor.h.
set_property(GLOBAL PROPERTY REMAT_COMPONENTS "")
set_property(GLOBAL PROPERTY REMAT_COMPONENTS_LEFT_OUT "")

function(remat_component name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "PURE;STATIC" "ONLY_WITH" "DEPENDS;LINK;HEADER_ONLY;PUBLIC")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "component ${name}: unknown argument ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(arg_ONLY_WITH AND NOT TARGET ${arg_ONLY_WITH})
    string(REPLACE "::" "" package ${arg_ONLY_WITH})
    message(STATUS "component ${name} is left out: ${${package}_REASON}")
    set_property(GLOBAL APPEND PROPERTY REMAT_COMPONENTS_LEFT_OUT ${name})
    set_property(GLOBAL PROPERTY REMAT_DEPENDS_${name} "${arg_DEPENDS}")
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/remat/${name}/*.cpp
    ${PROJECT_SOURCE_DIR}/remat/${name}/solvers/*.cpp)
  # Sources for one instruction set are added, with their flags, by RematKernels;
  # main.cpp belongs to the program.
  list(FILTER sources EXCLUDE REGEX "(_(avx2|avx512)|/main)\\.cpp$")
  if(NOT sources)
    message(FATAL_ERROR "component ${name}: there is no source in remat/${name}")
  endif()
  set(target remat_${name})
  set(kind "")
  if(arg_STATIC)
    set(kind STATIC)
  endif()
  add_library(${target} ${kind} ${sources})
  add_library(remat::${name} ALIAS ${target})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name}
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  foreach(dependency IN LISTS arg_DEPENDS)
    if(NOT TARGET remat_${dependency})
      message(FATAL_ERROR "component ${name} depends on ${dependency}, which is not declared before it")
    endif()
    target_link_libraries(${target} PUBLIC remat_${dependency})
  endforeach()
  target_link_libraries(${target} PUBLIC ${arg_LINK})
  foreach(library IN LISTS arg_HEADER_ONLY)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:${library}>)
  endforeach()
  if(arg_PURE)
    # Debian's libtorch headers stand in /usr/include; this directory comes first.
    target_include_directories(${target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/cmake/no_libtorch)
  else()
    target_link_libraries(${target} PUBLIC Libtorch::Libtorch)
    list(APPEND arg_LINK Libtorch::Libtorch)
    remat_precompile(${target})
  endif()
  set(headers "")
  foreach(header IN LISTS arg_PUBLIC)
    if(NOT EXISTS ${PROJECT_SOURCE_DIR}/remat/${name}/${header}.h)
      message(FATAL_ERROR "component ${name}: there is no public header remat/${name}/${header}.h")
    endif()
    list(APPEND headers remat/${name}/${header}.h)
  endforeach()
  set_property(GLOBAL PROPERTY REMAT_HEADERS_${name} "${headers}")
  set_property(GLOBAL APPEND PROPERTY REMAT_COMPONENTS ${name})
  set_property(GLOBAL PROPERTY REMAT_DEPENDS_${name} "${arg_DEPENDS}")
  set_property(GLOBAL PROPERTY REMAT_LINK_${name} "${arg_LINK}")
endfunction()

# remat_program(NAME NAME output DEPENDS component... HEADER_ONLY target...): the
# component of remat/NAME without its main.cpp, so that tests can call it, and the
# program. Always static: nobody else links it.
function(remat_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "NAME" "DEPENDS;HEADER_ONLY")
  remat_component(${name} STATIC DEPENDS ${arg_DEPENDS} HEADER_ONLY ${arg_HEADER_ONLY})
  add_executable(${arg_NAME} ${PROJECT_SOURCE_DIR}/remat/${name}/main.cpp)
  target_link_libraries(${arg_NAME} PRIVATE remat_${name})
  set_target_properties(${arg_NAME} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  set_property(GLOBAL PROPERTY REMAT_PROGRAM ${arg_NAME})
  set_property(GLOBAL PROPERTY REMAT_PROGRAM_COMPONENT ${name})
endfunction()
