// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sphinx includes this file in its search (html_search_scorer). A heading that contains the query comes first, for
// example the heading of an error code. Sphinx orders results of equal score by name; here pages that explain
// something come before reference pages, and these before lists, the older
// generation and records.
var Scorer = {
  score: ([page, , , , score, , kind]) => {
    const heading = kind === "title" ? 100 : 0;
    const order = [/^documents\/(changes|testing-records|decisions)/, /^reference\/.*values/, /^documents\//,
                   /^reference\/(beta|dialects)/, /^reference\//, /^(guides|tutorials|install|index)/];
    return heading + score + order.findIndex((names) => names.test(page)) / order.length;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
