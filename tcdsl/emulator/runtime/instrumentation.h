/* The calls that -fsanitize=thread puts before every memory access, and copies of memory. */
#pragma once
#include "access.h"

#define EMU_CALLBACK(name, size, alignment, WRITES)                                                \
  EMU_LOCAL void __tsan_##name##size(void *p) {                                                    \
    check_access<WRITES, false>((uintptr_t)p, size, alignment, EMU_HERE);                          \
  }
#define EMU_READ_WRITE(name, size, alignment) /* x += 1, in newer clangs */                        \
  EMU_LOCAL void __tsan_##name##size(void *p) {                                                    \
    check_access<false, false>((uintptr_t)p, size, alignment, EMU_HERE);                           \
    check_access<true, false>((uintptr_t)p, size, alignment, EMU_HERE);                            \
  }
#define EMU_CALLBACKS(size)                                                                        \
  EMU_CALLBACK(read, size, size, false) EMU_CALLBACK(unaligned_read, size, 1, false)               \
  EMU_CALLBACK(write, size, size, true) EMU_CALLBACK(unaligned_write, size, 1, true)               \
  EMU_READ_WRITE(read_write, size, size) EMU_READ_WRITE(unaligned_read_write, size, 1)
EMU_CALLBACKS(1)
EMU_CALLBACKS(2)
EMU_CALLBACKS(4)
EMU_CALLBACKS(8)
EMU_CALLBACKS(16)

EMU_LOCAL void __tsan_read_range(void *p, uint64_t size) {
  check_access<false, false>((uintptr_t)p, size, 1, EMU_HERE);
}
EMU_LOCAL void __tsan_write_range(void *p, uint64_t size) {
  check_access<true, false>((uintptr_t)p, size, 1, EMU_HERE);
}
EMU_LOCAL void __tsan_init() {}
EMU_LOCAL void __tsan_func_entry(void *) {}
EMU_LOCAL void __tsan_func_exit() {}
EMU_LOCAL void __tsan_vptr_update(void **, void *) {}
EMU_LOCAL void __tsan_vptr_read(void **) {}

/* Copies that the compiler leaves to the C library are accesses too; in the object of the kernels
 * these names mean the functions below.  Volatile, lest the loops become calls of themselves. */
static void copy_bytes(char *to, const char *from, uint64_t size) {
  if (to <= from || to >= from + size)
    for (uint64_t i = 0; i < size; ++i) ((volatile char *)to)[i] = from[i];
  else
    while (size-- > 0) ((volatile char *)to)[size] = from[size];
}
static void *checked_copy(void *to, const void *from, uint64_t size, Site site) {
  if (size == 0) return to;
  check_access<false, false>((uintptr_t)from, size, 1, site);
  check_access<true, false>((uintptr_t)to, size, 1, site);
  copy_bytes((char *)to, (const char *)from, size);
  return to;
}
EMU_LOCAL void *emu_memcpy(void *to, const void *from, uint64_t size) {
  return checked_copy(to, from, size, EMU_HERE);
}
EMU_LOCAL void *emu_memset(void *to, int value, uint64_t size) {
  if (size == 0) return to;
  check_access<true, false>((uintptr_t)to, size, 1, EMU_HERE);
  for (uint64_t i = 0; i < size; ++i) ((volatile char *)to)[i] = (char)value;
  return to;
}
EMU_LOCAL void *__tsan_memcpy(void *to, const void *from, uint64_t size) {
  return checked_copy(to, from, size, EMU_HERE);
}
EMU_LOCAL void *__tsan_memmove(void *to, const void *from, uint64_t size) {
  return checked_copy(to, from, size, EMU_HERE);
}
EMU_LOCAL void *__tsan_memset(void *to, int value, uint64_t size) {
  return emu_memset(to, value, size);
}
