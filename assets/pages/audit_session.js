/* The session that the audit page shows, as the parts of the page see it; `audit.js` puts in what can be asked and done. */
const watchers = [];

export const session = {
  /* other parts of the page follow the session: called once a frame after anything of it changed */
  watch: (watcher) => watchers.push(watcher),
  tell: (state) => watchers.forEach((watcher) => watcher(state)),
};
