# One room of the house = one static library. A room names the rooms below it in DEPS; tools/check_includes.py
# holds the includes to the same direction.

add_library(emberkv_options INTERFACE)
target_compile_options(emberkv_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  # Results must not depend on what the compiler happens to fuse (docs/architecture.md, determinism).
  # Kernels that may fuse say so by a property: an option of their own would come before this one and lose.
  $<IF:$<BOOL:$<TARGET_PROPERTY:EMBERKV_FUSES>>,-ffp-contract=fast,-ffp-contract=off>)
target_include_directories(emberkv_options INTERFACE ${PROJECT_SOURCE_DIR}/src)
if(EMBERKV_SANITIZE)
  target_compile_options(emberkv_options INTERFACE
    -fsanitize=${EMBERKV_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(emberkv_options INTERFACE -fsanitize=${EMBERKV_SANITIZE})
endif()
if(EMBERKV_FUZZ)
  target_compile_options(emberkv_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# emberkv_room(NAME SOURCES ... [KERNELS ...] [DOT_KERNELS ...] [DEPS rooms...] [LIBS libraries...] [PRIVATE_LIBS ...])
#   KERNELS: sources compiled once per instruction set, with EMBERKV_ISA naming the namespace to fill.
#   DOT_KERNELS: the same, and once more for AVX-512 with byte and bf16 dot products (VNNI, BF16, VBMI), for the
#   few kernels that gain by them.
function(emberkv_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;KERNELS;DOT_KERNELS;DEPS;LIBS;PRIVATE_LIBS" ${ARGN})
  add_library(emberkv_${name} STATIC ${ROOM_SOURCES})
  list(TRANSFORM ROOM_DEPS PREPEND emberkv_ OUTPUT_VARIABLE deps)
  target_link_libraries(emberkv_${name} PUBLIC emberkv_options ${deps} ${ROOM_LIBS} PRIVATE ${ROOM_PRIVATE_LIBS})
  set(avx512 "-march=x86-64-v4;-mprefer-vector-width=512")
  foreach(kernel IN LISTS ROOM_KERNELS ROOM_DOT_KERNELS)
    emberkv_kernel(emberkv_${name} ${kernel} portable "")
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      emberkv_kernel(emberkv_${name} ${kernel} avx2 "-march=x86-64-v3")
      emberkv_kernel(emberkv_${name} ${kernel} avx512 "${avx512}")
    endif()
  endforeach()
  foreach(kernel IN LISTS ROOM_DOT_KERNELS)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      emberkv_kernel(emberkv_${name} ${kernel} avx512dot
        "${avx512};-mavx512vnni;-mavx512bf16;-mavx512vbmi;-mavx512vbmi2")
    endif()
  endforeach()
endfunction()

# Products in kernels are exact in fp32 wherever contraction is allowed (bf16 x bf16), so fusing changes no bit.
# Sources that multiply inexact values are named *_strict.cc and are never contracted.
function(emberkv_kernel target source isa flags)
  get_filename_component(base ${source} NAME_WE)
  set(object ${target}_${base}_${isa})
  add_library(${object} OBJECT ${source})
  target_link_libraries(${object} PRIVATE emberkv_options)
  target_compile_definitions(${object} PRIVATE EMBERKV_ISA=${isa})
  target_compile_options(${object} PRIVATE ${flags} -O3 -Wno-psabi
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-uninitialized>)  # g++ 12 warns inside its own intrinsics
  if(NOT base MATCHES "_strict$")
    set_target_properties(${object} PROPERTIES EMBERKV_FUSES ON)
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${object}>)
endfunction()

# emberkv_test(NAME SOURCES ... [DEPS rooms...] [LIBS ...] [LABELS ...]): one GoogleTest binary.
function(emberkv_test name)
  if(NOT EMBERKV_TESTS)
    return()
  endif()
  cmake_parse_arguments(TEST "" "" "SOURCES;DEPS;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${TEST_SOURCES})
  list(TRANSFORM TEST_DEPS PREPEND emberkv_ OUTPUT_VARIABLE deps)
  target_link_libraries(${name} PRIVATE ${deps} ${TEST_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    EMBERKV_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data" EMBERKV_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 1200)
  if(TEST_LABELS)
    set_tests_properties(${name} PROPERTIES LABELS "${TEST_LABELS}")
  endif()
endfunction()

# emberkv_fuzz(NAME SOURCE DEPS rooms...): a libFuzzer target, built by the preset `fuzz` only.
function(emberkv_fuzz name source)
  if(NOT EMBERKV_FUZZ)
    return()
  endif()
  cmake_parse_arguments(FUZZ "" "" "DEPS" ${ARGN})
  add_executable(${name} ${source})
  list(TRANSFORM FUZZ_DEPS PREPEND emberkv_ OUTPUT_VARIABLE deps)
  target_link_libraries(${name} PRIVATE ${deps})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
endfunction()
