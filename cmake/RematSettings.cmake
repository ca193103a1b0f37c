# Language, warnings, sanitizers: the same for every target of the project.
include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT BUILD_SHARED_LIBS)
  # A program that links us statically does not offer our symbols to its plugins.
  # Shared libraries export all: the public API has no macro to say otherwise.
endif()
file(RELATIVE_PATH remat_lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set(CMAKE_INSTALL_RPATH "$ORIGIN/${remat_lib_from_bin}")
if(BUILD_SHARED_LIBS)
  list(APPEND CMAKE_INSTALL_RPATH "$ORIGIN")
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM AND NOT REMAT_SANITIZE)
  add_link_options(-fuse-ld=mold)
endif()
mark_as_advanced(CCACHE_PROGRAM MOLD_PROGRAM)

# A file that includes libtorch takes about 1 GB to compile: no more at once than
# the memory holds, whatever the number of cores. A container may own less of it
# than the machine has.
cmake_host_system_information(RESULT remat_memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
if(EXISTS /sys/fs/cgroup/memory.max)
  file(READ /sys/fs/cgroup/memory.max limit)
  if(limit MATCHES "^([0-9]+)")
    math(EXPR limit "${CMAKE_MATCH_1} / 1048576")
    if(limit LESS remat_memory_mib)
      set(remat_memory_mib ${limit})
    endif()
  endif()
endif()
math(EXPR remat_compile_jobs "${remat_memory_mib} / 1536")
if(remat_compile_jobs LESS 1)
  set(remat_compile_jobs 1)
endif()
set_property(GLOBAL APPEND PROPERTY JOB_POOLS compile=${remat_compile_jobs} link=2)
set(CMAKE_JOB_POOL_COMPILE compile)
set(CMAKE_JOB_POOL_LINK link)

add_compile_options(-Wall -Wextra)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies inside std::string::insert (its bug 105651).
  add_compile_options(-Wno-restrict)
endif()
add_compile_definitions(REMAT_VERSION="${PROJECT_VERSION}")
if(REMAT_WERROR)
  add_compile_options(-Werror)
endif()
if(REMAT_SANITIZE)
  add_compile_options(-fsanitize=${REMAT_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${REMAT_SANITIZE})
  if(REMAT_SANITIZE MATCHES "undefined")
    # A finding ends the test: otherwise it is a line that nobody reads. vptr needs
    # type information that libtorch hides.
    add_compile_options(-fno-sanitize-recover=all -fno-sanitize=vptr)
  endif()
endif()
