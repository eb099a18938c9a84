/* What a reviewer typed or judged and the log does not have yet, kept in this tab so that a reload does not lose it. */
const KEY = "coft-verdicts-unsent";

/* drafts by target, and verdicts on their way: `{ target, verdict, typed, reviewer }` */
export const recalled = () => {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEY));
    return { drafts: Array.isArray(kept?.drafts) ? kept.drafts : [], unsent: Array.isArray(kept?.unsent) ? kept.unsent : [] };
  } catch { return { drafts: [], unsent: [] }; }
};
export const keep = (drafts, unsent) => {
  try {
    if (drafts.size || unsent.length) sessionStorage.setItem(KEY, JSON.stringify({ drafts: [...drafts], unsent }));
    else sessionStorage.removeItem(KEY);
  } catch { /* full or forbidden storage: the work is then kept by this page alone */ }
};
