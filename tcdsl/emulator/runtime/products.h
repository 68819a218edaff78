/* Products of tensor cores that go on after they were issued: they run when the thread waits.
 *
 * So what changes their operands meanwhile changes the results, or is found as any access is, and
 * sums that are used too early lack the terms. */
#pragma once
#include "access.h"

struct Product {
  Product *next; /* issued after this one */
  void (*run)(void *, const void *, int, const void *, int);
  void *sums;
  const void *A, *B;
  int a, b;
  Site site;
};
static Product *spare_products; /* of this launch */

EMU_LOCAL void emu_product(void (*run)(void *, const void *, int, const void *, int),
                           void *sums, const void *A, int a, const void *B, int b,
                           const char *file, int line) {
  Product **place = &current->products;
  while (*place) place = &(*place)->next;
  Product *product = spare_products;
  if (product) spare_products = product->next;
  else product = (Product *)launch_memory(sizeof(Product));
  *product = {nullptr, run, sums, A, B, a, b, {file, line, EMU_CALLER}};
  *place = product;
}

/* Until *left* of them are left, of which each is a group. */
EMU_LOCAL void emu_end_products(int left) {
  for (const Product *p = current->products; p; p = p->next) --left;
  while (left++ < 0) {
    Product *product = current->products;
    product->run(product->sums, product->A, product->a, product->B, product->b);
    current->products = product->next;
    product->next = spare_products;
    spare_products = product;
  }
}

/* At the end of the current thread. */
static void check_products_are_done() {
  if (const Product *product = current->products)
    fail(RACE, product->site, "data race: a product of tensor cores and the end of its thread are "
         "not ordered: no tc_end_products lies between them");
}
