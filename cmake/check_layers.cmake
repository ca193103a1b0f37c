# cmake -DLAYERS=a=:b=a -DHEADERS=remat/a/x.h:... -DSOURCE_DIR=... -P check_layers.cmake
# Fails with every #include "remat/X/..." in remat/Y where Y neither is X nor declares X,
# and with every #include of a public header that is neither of the standard library, nor
# public itself, nor ATen/core/Tensor.h, nor c10/core/DeviceType.h: torch/torch.h costs a
# user 20 s a file.
cmake_minimum_required(VERSION 3.25)
string(REPLACE ":" ";" layers "${LAYERS}")
string(REPLACE ":" ";" headers "${HEADERS}")
set(errors 0)
set(includes 0)

function(fail text)
  message(SEND_ERROR "${text}")
  math(EXPR errors "${errors} + 1")
  set(errors ${errors} PARENT_SCOPE)
endfunction()

set(known "")
foreach(layer IN LISTS layers)
  string(REGEX MATCH "^([^=]+)=(.*)$" _ "${layer}")
  set(name ${CMAKE_MATCH_1})
  string(REPLACE "," ";" allowed_${name} "${CMAKE_MATCH_2}")
  list(APPEND known ${name})
endforeach()

foreach(name IN LISTS known)
  file(GLOB files ${SOURCE_DIR}/remat/${name}/*.h ${SOURCE_DIR}/remat/${name}/*.cpp
    ${SOURCE_DIR}/remat/${name}/solvers/*.h ${SOURCE_DIR}/remat/${name}/solvers/*.cpp)
  foreach(file IN LISTS files)
    file(STRINGS ${file} lines REGEX "^#[ ]*include[ ]+[\"<]remat/")
    foreach(line IN LISTS lines)
      math(EXPR includes "${includes} + 1")
      string(REGEX MATCH "remat/([a-z_]+)[./]" _ "${line}")
      set(used ${CMAKE_MATCH_1})
      if(NOT used STREQUAL name AND NOT used IN_LIST allowed_${name})
        fail("${file}: ${name} includes ${used}, which it does not declare: ${line}")
      endif()
    endforeach()
  endforeach()
endforeach()

file(GLOB rooms RELATIVE ${SOURCE_DIR}/remat LIST_DIRECTORIES true ${SOURCE_DIR}/remat/*)
foreach(room IN LISTS rooms)
  if(IS_DIRECTORY ${SOURCE_DIR}/remat/${room} AND NOT room IN_LIST known)
    fail("remat/${room} is no declared component")
  endif()
endforeach()

foreach(header IN LISTS headers)
  file(STRINGS ${SOURCE_DIR}/${header} lines REGEX "^#[ ]*include[ ]")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "[\"<]([^\">]+)[\">]" _ "${line}")
    set(used ${CMAKE_MATCH_1})
    if(NOT used MATCHES "^[a-z_]+$" AND NOT used MATCHES "^(ATen/core/Tensor|c10/core/DeviceType)\\.h$"
       AND NOT used IN_LIST headers)
      fail("${header} is public; it must not include ${used}")
    endif()
  endforeach()
endforeach()

if(errors)
  message(FATAL_ERROR "${errors} breaches of the layers")
endif()
list(LENGTH headers header_count)
message(STATUS "${includes} includes and ${header_count} public headers keep to the layers")
