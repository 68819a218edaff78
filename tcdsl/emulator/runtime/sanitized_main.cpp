/* A program that runs emulated kernels under the address sanitizer, with arrays on the heap.
 *
 * In: 8-byte words and bytes, as sanitized.py writes them.
 *     seed, threads of the largest cooperative launch, number of arrays, { bytes, content },
 *     number of launches, { kernel, 12 sizes, bytes of
 *     dynamic shared memory, number of arguments, { array or -1, offset or value } }, or for a
 *     memset in a launch's place { -1, value, width, count, array, offset }
 * Out: the arrays' contents. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
int32_t emu_begin(uint64_t seed, uint64_t n_arrays, uint64_t bytes, uint32_t ranks,
                  uint64_t residents);
int32_t emu_launch(uint32_t kernel, const uint32_t *sizes, uint64_t shared_bytes,
                   const uint64_t *arguments, uint32_t n_arguments);
int32_t emu_resume();
const void *emu_finding();
}

static void read_exactly(void *to, size_t bytes) {
  if (bytes && fread(to, 1, bytes, stdin) != bytes) exit(3);
}

static uint64_t read_word() {
  uint64_t word;
  read_exactly(&word, sizeof word);
  return word;
}

struct Array { char *data; size_t bytes; };

static bool fill(const Array *arrays) {
  const uint64_t value = read_word(), width = read_word(), count = read_word();
  const Array &array = arrays[read_word()];
  const uint64_t offset = read_word();
  if (offset > array.bytes || count * width > array.bytes - offset) {
    fprintf(stderr, "a memset beyond the end of an array\n");
    return false;
  }
  for (uint64_t i = 0; i < count; ++i) memcpy(array.data + offset + i * width, &value, width);
  return true;
}

static bool launch(const Array *arrays) {
  const uint64_t number = read_word();
  if (number == (uint64_t)-1) return fill(arrays);
  const uint32_t kernel = (uint32_t)number;
  uint32_t sizes[12];
  for (uint32_t &size : sizes) size = (uint32_t)read_word();
  const uint64_t shared_bytes = read_word();
  const uint32_t n = (uint32_t)read_word();
  uint64_t *values = (uint64_t *)malloc((n + 1) * sizeof(uint64_t));
  for (uint32_t i = 0; i < n; ++i) {
    const int64_t array = (int64_t)read_word();
    const uint64_t number = read_word();
    values[i] = array < 0 ? number : (uint64_t)(arrays[array].data + number);
  }
  int32_t outcome = emu_launch(kernel, sizes, shared_bytes, values, n);
  while (outcome == 1) outcome = emu_resume();
  free(values);
  return outcome == 0;
}

int main() {
  const uint64_t seed = read_word();
  if (!emu_begin(seed, 0, 0, 1, read_word())) return 4;
  const uint64_t n_arrays = read_word();
  Array *arrays = (Array *)malloc((n_arrays + 1) * sizeof(Array));
  for (uint64_t i = 0; i < n_arrays; ++i) {
    arrays[i].bytes = read_word();
    arrays[i].data = (char *)malloc(arrays[i].bytes); /* exactly: the sanitizer guards both ends */
    read_exactly(arrays[i].data, arrays[i].bytes);
  }
  for (uint64_t rest = read_word(); rest > 0; --rest)
    if (!launch(arrays)) return 2; /* a finding of the emulator, such as a divergent barrier */
  for (uint64_t i = 0; i < n_arrays; ++i) fwrite(arrays[i].data, 1, arrays[i].bytes, stdout);
  return 0;
}
