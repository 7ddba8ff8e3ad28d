// SPDX-License-Identifier: Apache-2.0
//
// The exported functions of symbols.inc. Each is one jump through a word of its own. It therefore needs no signature, and costs as much as
// a call into any shared library. Initially the word leads to softdc_preload_load. This function puts the address of the device library's
// function into the word, or of a function that returns EOPNOTSUPP. Then the call continues with its arguments unchanged.
#if !defined(__x86_64__)
#error "the trampolines are written for x86-64"
#endif

asm(R"(
  .text
  .hidden softdc_preload_load
  .type softdc_preload_first_call, @function
softdc_preload_first_call:   # r11: address of the caller's word
  push %rdi
  push %rsi
  push %rdx
  push %rcx
  push %r8
  push %r9
  push %rax                  # variadic calls count their vector registers in al
  push %r11
  sub $8, %rsp               # 16-byte alignment at the call
  call softdc_preload_load
  add $8, %rsp
  pop %r11
  pop %rax
  pop %r9
  pop %r8
  pop %rcx
  pop %rdx
  pop %rsi
  pop %rdi
  jmp *(%r11)
  .size softdc_preload_first_call, . - softdc_preload_first_call
)");

#define SOFTDC_SYMBOL(name, result)          \
  asm("  .text\n"                            \
      "  .globl " #name                      \
      "\n"                                   \
      "  .type " #name ", @function\n" #name \
      ":\n"                                  \
      "  jmp *softdc_slot_" #name            \
      "(%rip)\n"                             \
      "  .size " #name ", . - " #name        \
      "\n"                                   \
      ".Lfirst_" #name                       \
      ":\n"                                  \
      "  lea softdc_slot_" #name             \
      "(%rip), %r11\n"                       \
      "  jmp softdc_preload_first_call\n"    \
      "  .data\n"                            \
      "  .balign 8\n"                        \
      "  .globl softdc_slot_" #name          \
      "\n"                                   \
      "  .hidden softdc_slot_" #name         \
      "\n"                                   \
      "softdc_slot_" #name                   \
      ":\n"                                  \
      "  .quad .Lfirst_" #name "\n");
#include "transport/softdc/preload/symbols.inc"
#undef SOFTDC_SYMBOL
