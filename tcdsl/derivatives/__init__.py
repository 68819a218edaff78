"""Derivatives of defs as defs: source to source, on the typed comprehension.

A statement ``T(l(i)) += e(i, X(a(i)), ...)`` runs for all i of its domain.  With dT the adjoint of
T, that is the derivative of a number by the elements of T, the adjoint of each read is

    dX(a(i)) += dT(l(i)) * de/dX(a)        for all i of the domain

(a scatter over X, the sum over whatever i the subscripts do not fix).  Where a is affine and has
an inverse it is written over the elements of X: a gather (:mod:`inversion`).  The adjoint of a
gather ``X(I(i))`` is a scatter, that of a scatter ``T(I(i)) +=`` is a gather.

    builtin_rules, terms, partials    de/dX: one expression
    versions                          a name for every value: what is overwritten
    inversion                         scatters as gathers
    reductions, recurrences           products, extremes; statements that read their own results
    adjoint                           the reverse pass
    program, text                     statements, their first values, and the text

After Griewank and Walther, Evaluating Derivatives, SIAM 2008, doi:10.1137/1.9780898717761.
"""
