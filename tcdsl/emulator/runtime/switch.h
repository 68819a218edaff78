/* Switching between fibres: registers that a call preserves are pushed, the stack pointer changed.
 *
 * emu_switch(&from, to) returns when somebody switches back to what it stored in *from*.  The
 * floating-point modes are the same for all fibres, and are not saved. */
#pragma once
#include <stddef.h>
#include <stdint.h>

extern "C" void emu_fibre_main(); /* runs the kernel; never returns */

#if defined(__x86_64__) && !defined(EMU_UCONTEXT)
extern "C" void emu_switch(void **from, void *to) __attribute__((visibility("hidden")));
asm(R"(
.text
.type emu_switch, @function
.hidden emu_switch
.globl emu_switch
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch, . - emu_switch
)");
/* A new fibre: what emu_switch pops, then the address to which it returns. */
static inline void *emu_new_context(char *stack, size_t size) {
  void **top = (void **)((uintptr_t)(stack + size) & ~(uintptr_t)15);
  *--top = nullptr; /* the return address of emu_fibre_main, which a function finds at 16 n + 8 */
  *--top = (void *)emu_fibre_main;
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  return top;
}

#elif defined(__aarch64__) && !defined(EMU_UCONTEXT)
extern "C" void emu_switch(void **from, void *to) __attribute__((visibility("hidden")));
asm(R"(
.text
.type emu_switch, %function
.hidden emu_switch
.globl emu_switch
emu_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size emu_switch, . - emu_switch
)");
static inline void *emu_new_context(char *stack, size_t size) {
  void **top = (void **)((uintptr_t)(stack + size) & ~(uintptr_t)15) - 20;
  for (int i = 0; i < 20; ++i) top[i] = nullptr;
  top[11] = (void *)emu_fibre_main; /* x30, the link register */
  return top;
}

#else
#include <stdlib.h>
#include <ucontext.h>
/* A context lies at the start of its fibre's stack; the main one is allocated once. */
static inline void emu_switch(void **from, void *to) {
  static ucontext_t *main_context = nullptr;
  if (*from == nullptr) {
    if (main_context == nullptr) main_context = (ucontext_t *)malloc(sizeof *main_context);
    *from = main_context;
  }
  swapcontext((ucontext_t *)*from, (ucontext_t *)to);
}
static inline void *emu_new_context(char *stack, size_t size) {
  ucontext_t *context = (ucontext_t *)stack;
  const size_t header = (sizeof *context + 63) & ~(size_t)63;
  getcontext(context);
  context->uc_stack.ss_sp = stack + header;
  context->uc_stack.ss_size = size - header;
  context->uc_link = nullptr;
  makecontext(context, emu_fibre_main, 0);
  return context;
}
#endif
