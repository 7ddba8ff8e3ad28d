# SPDX-License-Identifier: Apache-2.0
#
# find_package(Sluice) gives the targets
#   Sluice::sluice          the library
#   Sluice::sluice_static   the same as an archive
#   Sluice::protoc_plugin   the code generator
# with COMPONENTS prometheus, which needs prometheus-cpp,
#   Sluice::prometheus          HttpPages, PrometheusMetrics and MetricsExposer, and Sluice::sluice
#   Sluice::prometheus_static   the same as an archive, and Sluice::sluice_static
# and the function
#   sluice_protobuf_generate(TARGET <target> PROTOS <file.proto>... [IMPORT_DIRS <folder>...])
# which compiles messages (.pb.h) and services (.sluice.h) of those files into the target. A file's header is named as
# the file is below the first of IMPORT_DIRS (by default the current source folder) that contains it.
include(CMakeFindDependencyMacro)
find_dependency(absl)
find_dependency(Protobuf)
find_dependency(Threads)
foreach(_sluice_component IN LISTS Sluice_FIND_COMPONENTS)
  if(_sluice_component STREQUAL prometheus)
    if(Sluice_FIND_REQUIRED_prometheus)
      find_dependency(prometheus-cpp CONFIG)
    else()
      find_package(prometheus-cpp CONFIG QUIET)
    endif()
    set(Sluice_prometheus_FOUND ${prometheus-cpp_FOUND})
  elseif(Sluice_FIND_REQUIRED_${_sluice_component})
    set(Sluice_FOUND FALSE)
    set(Sluice_NOT_FOUND_MESSAGE "Sluice has no component '${_sluice_component}'; it has 'prometheus'")
    return()
  endif()
endforeach()

get_filename_component(_sluice_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET Sluice::sluice)
  set(_sluice_links absl::bind_front absl::cord absl::core_headers absl::flat_hash_map absl::function_ref absl::span
      absl::status absl::statusor absl::str_format absl::strings absl::synchronization absl::time absl::utility
      protobuf::libprotobuf Threads::Threads)

  add_library(Sluice::sluice SHARED IMPORTED)
  set_target_properties(Sluice::sluice PROPERTIES
    IMPORTED_LOCATION "${_sluice_prefix}/lib/libsluice.so.0"
    IMPORTED_SONAME libsluice.so.0)
  add_library(Sluice::sluice_static STATIC IMPORTED)
  set_target_properties(Sluice::sluice_static PROPERTIES
    IMPORTED_LOCATION "${_sluice_prefix}/lib/libsluice.a"
    IMPORTED_LINK_INTERFACE_LANGUAGES CXX)

  foreach(_sluice_target Sluice::sluice Sluice::sluice_static)
    target_include_directories(${_sluice_target} INTERFACE "${_sluice_prefix}/include/sluice")
    target_compile_features(${_sluice_target} INTERFACE cxx_std_20)
    target_link_libraries(${_sluice_target} INTERFACE ${_sluice_links})
  endforeach()
  target_link_libraries(Sluice::sluice_static INTERFACE ibverbs mlx5 rdmacm isal sodium)

  add_executable(Sluice::protoc_plugin IMPORTED)
  set_target_properties(Sluice::protoc_plugin PROPERTIES IMPORTED_LOCATION "${_sluice_prefix}/bin/protoc-gen-sluice")
endif()

if(Sluice_prometheus_FOUND AND NOT TARGET Sluice::prometheus)
  add_library(Sluice::prometheus SHARED IMPORTED)
  set_target_properties(Sluice::prometheus PROPERTIES
    IMPORTED_LOCATION "${_sluice_prefix}/lib/libsluice_prometheus.so.0"
    IMPORTED_SONAME libsluice_prometheus.so.0)
  target_link_libraries(Sluice::prometheus INTERFACE Sluice::sluice prometheus-cpp::pull)
  add_library(Sluice::prometheus_static STATIC IMPORTED)
  set_target_properties(Sluice::prometheus_static PROPERTIES
    IMPORTED_LOCATION "${_sluice_prefix}/lib/libsluice_prometheus.a"
    IMPORTED_LINK_INTERFACE_LANGUAGES CXX)
  target_link_libraries(Sluice::prometheus_static INTERFACE Sluice::sluice_static prometheus-cpp::pull civetweb)
endif()

function(sluice_protobuf_generate)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "TARGET" "PROTOS;IMPORT_DIRS")
  if(NOT arg_TARGET OR NOT arg_PROTOS OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "usage: sluice_protobuf_generate(TARGET <target> PROTOS <file.proto>... [IMPORT_DIRS <folder>...])")
  endif()
  if(NOT arg_IMPORT_DIRS)
    set(arg_IMPORT_DIRS "${CMAKE_CURRENT_SOURCE_DIR}")
  endif()
  set(generated "${CMAKE_CURRENT_BINARY_DIR}/sluice_generated")
  file(MAKE_DIRECTORY "${generated}")

  set(imports)
  set(folders)
  foreach(folder IN LISTS arg_IMPORT_DIRS)
    get_filename_component(folder "${folder}" ABSOLUTE)
    list(APPEND folders "${folder}")
    list(APPEND imports "-I${folder}")
  endforeach()
  # For what the .proto files import from Sluice itself.
  list(APPEND imports "-I${_sluice_prefix}/include/sluice")

  foreach(proto IN LISTS arg_PROTOS)
    get_filename_component(proto "${proto}" ABSOLUTE)
    set(stem)
    foreach(folder IN LISTS folders)
      file(RELATIVE_PATH below "${folder}" "${proto}")
      if(NOT below MATCHES "^\\.\\./")
        string(REGEX REPLACE "\\.proto$" "" stem "${below}")
        break()
      endif()
    endforeach()
    if(NOT stem)
      message(FATAL_ERROR "${proto} is in none of ${folders}: name its folder after IMPORT_DIRS")
    endif()
    set(outputs "${generated}/${stem}.pb.cc" "${generated}/${stem}.pb.h"
                "${generated}/${stem}.sluice.cc" "${generated}/${stem}.sluice.h")
    add_custom_command(
      OUTPUT ${outputs}
      COMMAND protobuf::protoc ${imports} "--cpp_out=${generated}" "--sluice_out=${generated}"
              "--plugin=protoc-gen-sluice=$<TARGET_FILE:Sluice::protoc_plugin>" "${proto}"
      DEPENDS "${proto}" Sluice::protoc_plugin
      VERBATIM)
    target_sources(${arg_TARGET} PRIVATE ${outputs})
  endforeach()
  target_include_directories(${arg_TARGET} PUBLIC "${generated}")
endfunction()
