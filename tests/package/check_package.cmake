# cmake -DBUILD_DIR=... -DSOURCE_DIR=... -DGENERATOR=... -DCXX=... -DLIBDIR=... -P this
cmake_minimum_required(VERSION 3.25)
set(root ${BUILD_DIR}/package_test)
set(prefix ${root}/prefix)
file(REMOVE_RECURSE ${root})
file(MAKE_DIRECTORY ${root})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output
    ERROR_VARIABLE output WORKING_DIRECTORY ${root})
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix} --component library)
if(EXISTS ${BUILD_DIR}/bin/remat)
  run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix} --component program)
  run(${prefix}/bin/remat --version)
  message(STATUS "installed program: ${output}")
endif()

# The installed files alone: the tree may be moved and must not look back.
file(RENAME ${prefix} ${root}/moved)
set(prefix ${root}/moved)
file(GLOB_RECURSE texts ${prefix}/*.cmake ${prefix}/*.pc)
foreach(text IN LISTS texts)
  file(READ ${text} content)
  string(FIND "${content}" "${BUILD_DIR}" position)
  if(NOT position EQUAL -1)
    message(FATAL_ERROR "${text} names the build directory")
  endif()
endforeach()

run(${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${root}/build -G ${GENERATOR}
  -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Debug)
run(${CMAKE_COMMAND} --build ${root}/build)
run(${root}/build/stranger)
message(STATUS "find_package: ${output}")

# The planner alone, where libtorch cannot be found: nothing of it is asked for, and
# nothing of it is loaded.
run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/plan -B ${root}/build_plan -G ${GENERATOR}
  -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Debug
  -DCMAKE_DISABLE_FIND_PACKAGE_Libtorch=ON)
run(${CMAKE_COMMAND} --build ${root}/build_plan)
run(${root}/build_plan/planner)
message(STATUS "find_package, plan alone: ${output}")
run(ldd ${root}/build_plan/planner)
if(NOT output MATCHES "libc\\.so" OR output MATCHES "torch|libc10")
  message(FATAL_ERROR "the planner loads more than it should:\n${output}")
endif()
# As a proof that the above would find it.
run(ldd ${root}/build/stranger)
if(NOT output MATCHES "torch")
  message(FATAL_ERROR "ldd names no libtorch where there is one:\n${output}")
endif()

set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
run(pkg-config --cflags --libs remat)
string(STRIP "${output}" flags)
separate_arguments(flags UNIX_COMMAND "${flags}")
run(${CXX} -std=c++20 ${SOURCE_DIR}/main.cpp -o ${root}/stranger_pc ${flags})
set(ENV{LD_LIBRARY_PATH} ${prefix}/${LIBDIR})
run(${root}/stranger_pc)
message(STATUS "pkg-config: ${output}")
file(REMOVE_RECURSE ${root})
