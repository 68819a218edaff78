/* Asynchronous copies from global to shared memory, in flight until the thread waits for them.
 *
 * The source is read when a copy is issued, and must be the same until the wait.  The destination
 * is taken then, too: whatever touches it before the wait is a finding.  It is written by the wait,
 * and that is when other threads must be ordered after it. */
#pragma once
#include "access.h"

struct Copy {
  Copy *next; /* issued after this one */
  const char *from; /* null: zeros */
  char *to;
  uint32_t size;
  uint32_t group; /* how many its thread had ended before */
  char bytes[16];
  Site site;
};
static Copy *spare_copies; /* of this launch */

static Copy *new_copy() {
  Copy *copy = spare_copies;
  if (!copy) return (Copy *)launch_memory(sizeof(Copy));
  spare_copies = copy->next;
  return copy;
}

template <typename F> static void each_target_cell(const Copy &copy, F visit) {
  Region &r = *region_at((uintptr_t)copy.to);
  const uint64_t offset = (uintptr_t)copy.to - r.base;
  for (uint64_t at = offset; at < offset + copy.size; at += 1u << r.shift)
    visit(r.cells[at >> r.shift].write);
}

static void check_copied_memory(uintptr_t to, uintptr_t from, Site site) {
  const Region *target = region_at(to), *source = from ? region_at(from) : nullptr;
  if (!target || !(target->flags & SHARED) || target->rank != own->rank)
    fail(OUT_OF_BOUNDS, site, "an asynchronous copy to what is not shared memory of this block");
  if (from && (!source || source->flags & SHARED))
    fail(OUT_OF_BOUNDS, site, "an asynchronous copy from what is not global memory");
}

EMU_LOCAL void emu_copy_async(void *to, const void *from, int size, const char *file, int line) {
  const Site site = {file, line, EMU_CALLER};
  const uint64_t bytes = (uint64_t)size;
  if (from) check_access<false, false>((uintptr_t)from, bytes, bytes, site);
  check_access<true, false>((uintptr_t)to, bytes, bytes, site);
  check_copied_memory((uintptr_t)to, (uintptr_t)from, site);
  Copy **place = &current->copies;
  while (*place) place = &(*place)->next;
  Copy *copy = *place = new_copy();
  *copy = {nullptr, (const char *)from, (char *)to, (uint32_t)size, current->groups, {}, site};
  if (from) memcpy(copy->bytes, from, bytes);
  memset(to, 0xff, bytes);
  each_target_cell(*copy, [](Access &write) { write.flags |= IN_FLIGHT; });
}

/* The first copy that is on its way arrives. */
static void finish_copy(Site site) {
  Copy *copy = current->copies;
  const uintptr_t from = (uintptr_t)copy->from;
  if (from) check_access<false, false>(from, copy->size, copy->size, site);
  if (from && memcmp(copy->bytes, copy->from, copy->size))
    fail(RACE, site, "data race at %s: it was written while an asynchronous copy read it",
         place(*region_at(from), from));
  each_target_cell(*copy, [](Access &write) { set_access(write, WRITTEN); });
  memcpy(copy->to, copy->bytes, copy->size);
  current->copies = copy->next;
  copy->next = spare_copies;
  spare_copies = copy;
}

EMU_LOCAL void emu_copy_wait(const char *file, int line) {
  while (current->copies) finish_copy({file, line, EMU_CALLER});
}

EMU_LOCAL void emu_copy_end_group() { current->groups++; }

EMU_LOCAL void emu_copy_wait_but(int groups, const char *file, int line) {
  while (current->copies && current->copies->group + groups < current->groups)
    finish_copy({file, line, EMU_CALLER});
}

/* At the end of the current thread. */
static void check_copies_are_done() {
  const Copy *copy = current->copies;
  if (!copy) return;
  const uintptr_t to = (uintptr_t)copy->to;
  fail(RACE, copy->site, "data race at %s: the asynchronous copy to it and the end of its thread "
       "are not ordered: no tc_copy_wait lies between them", place(*region_at(to), to));
}
