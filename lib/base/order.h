/* order.h : comparisons for qsort() and bsearch(). */
#ifndef BASE_ORDER_H
#define BASE_ORDER_H

/* sl_order_i32() : numbers i32, ascending. */
int sl_order_i32(const void *a, const void *b);

/* sl_order_real() : doubles, ascending. */
int sl_order_real(const void *a, const void *b);

#endif
