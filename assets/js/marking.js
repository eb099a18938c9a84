/* Marked spans of a text: where they stand, what becomes of them when the text changes, and how one is drawn. */
"use strict";
(() => {
  const coft = window.coft;

  /* offsets: the server counts code points, the browser counts UTF-16 units */
  const astral = (text) => /[\ud800-\udfff]/.test(text);
  const toUnits = (text, offset) => (astral(text) ? [...text].slice(0, offset).join("").length : offset);
  const toPoints = (text, offset) => (astral(text) ? [...text.slice(0, offset)].length : offset);
  const outward = (spans, text) => spans.map((s) => ({ ...s, start: toPoints(text, s.start), end: toPoints(text, s.end) }));
  const inward = (spans, text) => spans.map((s) => ({ ...s, start: toUnits(text, s.start), end: toUnits(text, s.end) }));

  const key = (span, text) => `${span.category}:${text.slice(span.start, span.end).toLowerCase()}`;
  const sorted = (spans) => [...spans].sort((a, b) => a.start - b.start);

  /* keep spans beside an edit, drop those that it touches */
  const followed = (spans, before, after) => {
    let head = 0;
    const most = Math.min(before.length, after.length);
    while (head < most && before[head] === after[head]) head += 1;
    let tail = 0;
    while (tail < most - head && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail += 1;
    const shift = after.length - before.length;
    return spans.flatMap((span) => {
      if (span.end <= head) return [span];
      if (span.start >= before.length - tail) return [{ ...span, start: span.start + shift, end: span.end + shift }];
      return [];
    });
  };

  /* a span as the reviewer's own decision: masked, and sure */
  const own = (span) => ({ ...span, source: "user", detail: "", kept: false, score: null, suggested: false });

  /* what a detection found beside the reviewer's decisions, which outlive it */
  const merged = (found, { spans, text, removed }) => {
    const mine = spans.filter((span) => span.source === "user");
    const kept = new Set(spans.filter((span) => span.kept && !span.whitelisted).map((span) => key(span, text)));
    const fresh = found
      .filter((span) => !removed.has(key(span, text)))
      .filter((span) => mine.every((other) => other.end <= span.start || other.start >= span.end))
      .map((span) => {
        const keep = span.kept || kept.has(key(span, text));
        return { ...span, kept: keep, whitelisted: span.kept && span.source !== "list", suggested: span.suggested && !keep };
      });
    return sorted([...mine, ...fresh]);
  };

  const drawn = (span) => (span.kept ? " white" : span.suggested ? " offer" : "");
  const mark = (span, words, families) => coft.el("span", { class: `span f-${span.category}${drawn(span)}${span.picked ? " picked" : ""}` }, words,
    coft.el("span", { class: "fam", text: (families[span.category] || span.category) + (span.kept ? ", kept" : span.suggested ? ", suggested" : "") }));

  coft.marking = { toPoints, outward, inward, key, sorted, followed, own, merged, mark };
})();
