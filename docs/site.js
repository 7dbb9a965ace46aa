// What scrolls can be reached by the keyboard, and the search has a name for who hears the page.
function reachable() {
  document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code").forEach((part) => {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  });
  document.querySelectorAll(".md-search[role=dialog]").forEach((part) => part.setAttribute("aria-label", "Search"));
}
document.addEventListener("DOMContentLoaded", reachable);
window.addEventListener("load", reachable);
window.addEventListener("resize", reachable);
