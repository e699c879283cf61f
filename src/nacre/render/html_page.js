"use strict";
const unfold = () => {
  const one = document.getElementById(location.hash.slice(1));
  if (one && one.matches("details")) one.open = true;
};
addEventListener("hashchange", unfold);
unfold();
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const first = document.querySelector("article");
  if (!first) return;
  const [marked] = document.getElementsByClassName("here");
  const near = y => { const at = document.elementFromPoint(innerWidth / 2, y); return at && at.closest("article"); };
  const inView = one => { const box = one.getBoundingClientRect(); return box.bottom > 0 && box.top < innerHeight; };
  const here = marked && inView(marked) ? marked : near(24) || near(72);
  const sibling = (one, on) => {
    const next = on ? one.nextElementSibling : one.previousElementSibling;
    if (next) return next;
    const section = on ? one.parentElement.nextElementSibling : one.parentElement.previousElementSibling;
    return section && (on ? section.firstElementChild : section.lastElementChild);
  };
  const step = (from, on, kind) => {
    let one = from;
    do one = one && sibling(one, on); while (one && !one.matches(kind));
    return one;
  };
  const go = one => {
    if (!one) return;
    if (marked) marked.classList.remove("here");
    one.classList.add("here");
    one.scrollIntoView({block: "start"});
    if (one.id) history.replaceState(null, "", "#" + one.id);
    event.preventDefault();
  };
  const fold = one => {
    const all = one ? [...one.querySelectorAll("details")] : [];
    const open = all.some(each => !each.open);
    all.forEach(each => { each.open = open; });
  };
  switch (event.key) {
    case "j": go(here ? step(here, true, "article") : first); break;
    case "k": go(step(here, false, "article")); break;
    case "n": go(here ? step(here, true, ".user") : first); break;
    case "p": go(step(here, false, ".user")); break;
    case "g": go(first); break;
    case "G": go(document.querySelector("main").lastElementChild.lastElementChild); break;
    case "e": fold(here); break;
  }
});
