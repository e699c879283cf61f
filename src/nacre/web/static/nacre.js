"use strict";
// The page works without this; with it, messages are fetched as they come into view, followed and streamed.

const $ = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const html = document.documentElement;
const base = html.dataset.base;
const main = $("#transcript");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const isTouched = matchMedia("(hover: none) and (pointer: coarse)");

const tell = words => { const status = $("#status"); if (status) status.textContent = words; };
const ours = `${origin}${base}/`;
const local = href => href && URL.canParse(href, ours) && new URL(href, ours).href.startsWith(ours) ? href : ours;
// A proxy whose server is away answers in its own words.
const why = async answer => (await answer.json().catch(() => ({}))).detail || `the server answered ${answer.status}; try again`;
const at = (address, query) => `${address}${address.includes("?") ? "&" : "?"}${query}`;
const parsed = text => { const holder = document.createElement("template"); holder.innerHTML = text; return holder.content; };

// ---- logging in: the token may stand after the address, where no server sees it

const login = async token => {
  const answer = await fetch($("#login").action, {
    method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify({token}),
  });
  if (answer.ok) location.replace(local(new URLSearchParams(location.search).get("next")));
  else $("#wrong").textContent = await why(answer);
};
if ($("#login")) {
  const take = () => {
    const given = new URLSearchParams(location.hash.slice(1)).get("token");
    if (given) { history.replaceState(null, "", location.pathname + location.search); login(given); }
  };
  take();
  // A link that is opened where the form is already loads no page.
  addEventListener("hashchange", take);
  $("#login").addEventListener("submit", event => { event.preventDefault(); login(event.target.token.value); });
}

// ---- what is chosen for all pages: dark or light, a sidebar or none; and the help

const keep = (name, value) => { document.cookie = `${name}=${value}; path=${html.dataset.prefix || "/"}; max-age=31536000; samesite=strict`; };
const isDark = () => (html.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const isWide = matchMedia("(min-width: 60rem)");
const acts = {
  theme() {
    html.dataset.theme = isDark() ? "light" : "dark";
    keep("theme", html.dataset.theme);
  },
  side() {
    if (!isWide.matches) { $("#side").togglePopover(); return; }
    html.dataset.side = html.dataset.side === "closed" ? "open" : "closed";
    keep("side", html.dataset.side);
  },
  help() {
    const help = $("#help");
    if (help.open) { help.close(); return; }
    help.showModal();
    // Its button is at the end, and gets the focus; one reads from the beginning.
    help.scrollTop = 0;
  },
};
all("[data-act]").forEach(button => { button.hidden = false; });
addEventListener("click", ({target}) => acts[target.closest?.("[data-act]")?.dataset.act]?.());

// ---- times as the reader's own clock and calendar have them; in full for those who point at them

const hour = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit"});
const day = new Intl.DateTimeFormat(undefined, {day: "numeric", month: "short"});
const date = new Intl.DateTimeFormat(undefined, {day: "numeric", month: "short", year: "numeric"});
const full = new Intl.DateTimeFormat(undefined, {dateStyle: "full", timeStyle: "long"});
const localise = from => {
  const now = new Date();
  for (const one of all("time[datetime]", from)) {
    const then = new Date(one.dateTime);
    one.title = full.format(then);
    if (one.closest(".when")) continue;
    const isToday = then.toDateString() === now.toDateString();
    const on = isToday ? "" : `${(then.getFullYear() === now.getFullYear() ? day : date).format(then)}, `;
    one.textContent = on + hour.format(then);
  }
  return from;
};
localise(document);

// ---- the sidebar: its sessions are narrowed as one types, and kept up to date

const side = $("#recent");
const sideSearch = $("#side [type=search]");
let sideWanted = 0;
const drawSide = async () => {
  const wanted = ++sideWanted;
  const here = main ? main.dataset.key : "";
  const answer = await fetch(at(side.dataset.side, new URLSearchParams({text: sideSearch.value.trim(), here}))).catch(() => null);
  if (answer?.ok && wanted === sideWanted) side.replaceChildren(parsed(await answer.text()));
};
let sideTimer = 0;
sideSearch?.addEventListener("input", () => { clearTimeout(sideTimer); sideTimer = setTimeout(drawSide, 120); });

// ---- a transcript: a run of chunks between two gaps, which are as high as what is not there

const MAX_ELEMENTS = 1500;

class Scroller {
  constructor() {
    const facts = main.dataset;
    this.size = +facts.chunk;
    this.low = +facts.low;
    this.high = +facts.high;
    this.heights = new Map();
    this.kept = new Map();
    this.folds = new Map();
    this.before = $("#before");
    this.after = $("#after");
    this.isFollowing = true;
    this.moves = 0;
    this.busy = null;
    this.measure();
    this.fill();
    addEventListener("scroll", () => this.soon(), {passive: true});
    addEventListener("resize", () => { this.heights.clear(); this.soon(); });
    for (const act of ["wheel", "touchmove", "keydown"]) addEventListener(act, () => { this.isBehind = false; }, {passive: true});
  }

  get first() { return Math.floor((this.low - 1) / this.size); }
  get last() { return Math.floor(Math.max(this.high - 1, 0) / this.size); }
  get sections() { return all(":scope > section", main); }
  get from() { const [one] = this.sections; return one ? +one.dataset.chunk : this.last + 1; }
  get to() { const one = this.sections.at(-1); return one ? +one.dataset.chunk : this.last; }

  count(chunk) {
    return Math.max(Math.min(this.high, (chunk + 1) * this.size) - Math.max(this.low, chunk * this.size + 1) + 1, 0);
  }

  measure() {
    let pixels = 0, messages = 0;
    for (const section of this.sections) {
      const chunk = +section.dataset.chunk;
      this.heights.set(chunk, section.offsetHeight);
    }
    for (const [chunk, height] of this.heights) { pixels += height; messages += this.count(chunk); }
    this.each = messages ? pixels / messages : 90;
  }

  height(chunk) { return this.heights.get(chunk) ?? this.count(chunk) * this.each; }

  span(from, to) {
    let sum = 0;
    for (let chunk = from; chunk < to; chunk++) sum += this.height(chunk);
    return Math.min(sum, 8e6);
  }

  fill() {
    for (const [gap, from, to] of [[this.before, this.first, this.from], [this.after, this.to + 1, this.last + 1]]) {
      gap.style.height = `${this.span(from, to)}px`;
      gap.classList.toggle("drawn", to > from);
    }
    this.changed?.();
  }

  // Change what is there without moving what is seen.
  hold(change) {
    const seen = this.sections.find(one => one.getBoundingClientRect().bottom > 0) || this.after;
    const mark = all("article", seen).find(one => one.getBoundingClientRect().bottom > 0) || seen;
    const was = mark.getBoundingClientRect().top;
    change();
    if (mark.isConnected) {
      const moved = mark.getBoundingClientRect().top - was;
      if (Math.abs(moved) > 1) scrollBy({top: moved, behavior: "instant"});
    }
  }

  soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.look(); });
  }

  // What is in view, or will be soon, and is not there yet.
  wanted() {
    if (!this.high) return null;
    // Of messages with very much in them only those in view are held.
    const margin = this.isHeavy ? 0 : 2 * innerHeight;
    const before = this.before.getBoundingClientRect(), after = this.after.getBoundingClientRect();
    const inside = (box, from, to) => {
      const middle = (Math.max(box.top, 0) + Math.min(box.bottom, innerHeight)) / 2;
      const share = (middle - box.top) / Math.max(box.height, 1);
      return Math.min(from + Math.floor(share * (to - from)), to - 1);
    };
    if (before.height && before.bottom > innerHeight / 2 && before.top < innerHeight) {
      const chunk = inside(before, this.first, this.from);
      if (chunk < this.from - 1) return {chunk, isFar: true};
    }
    if (after.height && after.top < innerHeight / 2 && after.bottom > 0) {
      const chunk = inside(after, this.to + 1, this.last + 1);
      if (chunk > this.to + 1) return {chunk, isFar: true};
    }
    if (this.from > this.first && before.bottom > -margin) return {chunk: this.from - 1};
    if (this.to < this.last && after.top < innerHeight + margin) return {chunk: this.to + 1};
    return null;
  }

  async look() {
    if (this.busy) return;
    const wanted = this.wanted();
    if (!wanted) return;
    const {moves} = this;
    this.busy = wanted.isFar ? this.jump(wanted.chunk, () => moves === this.moves) : this.add(wanted.chunk);
    try { await this.busy; } catch { tell("server not reachable; scroll to retry"); this.busy = null; return; }
    this.busy = null;
    this.soon();
  }

  async get(chunk, isFresh = false) {
    if (!isFresh && chunk !== this.last && this.kept.has(chunk)) return this.section(this.kept.get(chunk));
    const answer = await fetch(at(main.dataset.part, `chunk=${chunk}&${main.dataset.query}`));
    if (!answer.ok) throw new Error(answer.statusText);
    const text = await answer.text();
    this.kept.set(chunk, text);
    if (this.kept.size > 40) this.kept.delete(this.kept.keys().next().value);
    return this.section(text);
  }

  section(text) {
    const found = $("section", parsed(text));
    if (!found) return found;
    if (this.isUnfolded) all("details", found).forEach(one => { one.open = true; });
    for (const one of all("details[id]", found)) if (this.folds.has(one.id)) one.open = this.folds.get(one.id);
    return localise(found);
  }

  async add(chunk) {
    const section = await this.get(chunk);
    if (!section || (chunk !== this.from - 1 && chunk !== this.to + 1)) return;
    const isAbove = chunk < this.from;
    this.hold(() => {
      if (isAbove) this.before.after(section); else this.after.before(section);
      this.measure();
      this.fill();
    });
    this.hold(() => { this.trim(); this.fill(); });
  }

  get isHeavy() { return main.getElementsByTagName("*").length > MAX_ELEMENTS; }

  // Take away what is far from view: however much comes, the browser holds a few screens of it.
  trim() {
    const far = (this.isHeavy ? 1 : 3) * innerHeight;
    const many = this.sections;
    const isFar = one => { const box = one.getBoundingClientRect(); return box.bottom < -far || box.top > innerHeight + far; };
    while (many.length > 1 && isFar(many[0])) this.drop(many.shift());
    while (many.length > 1 && isFar(many.at(-1))) this.drop(many.pop());
  }

  // What was unfolded is so again when one comes back.
  drop(section) {
    for (const one of all("details[id]", section)) this.folds.set(one.id, one.open);
    section.remove();
  }

  // What was in view may no longer be when it comes: a reader who follows new messages is not taken back.
  async jump(chunk, isWanted = () => true) {
    const section = await this.get(chunk);
    if (!section || !isWanted()) return;
    this.sections.forEach(one => this.drop(one));
    this.before.after(section);
    this.measure();
    this.fill();
    const box = section.getBoundingClientRect();
    if (box.bottom < innerHeight / 2 || box.top > innerHeight / 2) section.scrollIntoView({block: "start", behavior: "instant"});
  }

  async show(chunk) {
    while (this.busy) await this.busy.catch(() => {});
    if (chunk >= this.from && chunk <= this.to) return;
    this.busy = chunk === this.from - 1 || chunk === this.to + 1 ? this.add(chunk) : this.jump(chunk);
    try { await this.busy; } finally { this.busy = null; }
  }

  get isNearEnd() { return scrollY + innerHeight > html.scrollHeight - 120; }
  get isAtEnd() { return this.to >= this.last && this.isNearEnd; }

  toEnd() { scrollTo({top: html.scrollHeight, behavior: "instant"}); }

  // Bring the end up to date: what is new is put there, what is as it was stays as it is.
  async refresh() {
    const before = this.last;
    // Asked again after each wait: meanwhile somebody may have gone elsewhere, and is not taken back.
    const isThere = () => this.isFollowing && (this.isBehind || (this.to >= before && this.isNearEnd));
    const first = await this.fresh(before);
    const wanted = !isThere() || this.last === before ? []
      // Of much that has come at once, what would be far above the end is not fetched.
      : this.last > before + 1 ? [this.last - 1, this.last] : [this.last];
    const rest = (await Promise.all(wanted.map(chunk => this.fresh(chunk)))).filter(Boolean);
    const follows = isThere();
    const old = $(`section[data-chunk="${before}"]`, main);
    if (old && first) this.merge(old, first); else if (first && !this.sections.length) this.after.before(first);
    if (follows) {
      this.moves += 1;
      if (rest.length > 1) this.sections.forEach(one => this.drop(one));
      this.after.before(...rest);
    }
    // More may have come meanwhile: a reader who follows is taken there too.
    this.isBehind = follows && this.to < this.last;
    if (this.isBehind) isStale = true;
    $("main > .welcome, main > .none")?.remove();
    this.arrived?.();
    this.measure();
    this.fill();
    if (follows) { this.toEnd(); this.trim(); this.fill(); this.toEnd(); } else $("#new").hidden = false;
    if (!this.isBehind) this.soon();
  }

  async fresh(chunk) {
    const section = await this.get(chunk, true);
    if (!section) return null;
    this.high = Math.max(this.high, +section.dataset.high);
    main.dataset.n = section.dataset.n;
    const live = +section.dataset.live;
    $("#count").textContent = `${live.toLocaleString("en")} message${live === 1 ? "" : "s"}`;
    return section;
  }

  // Begin again with what the server draws now, where the history itself was changed.
  async redraw() {
    const answer = await fetch(main.dataset.page);
    if (!answer.ok) return;
    const page = parsed(await answer.text()), drawn = $("#transcript", page);
    // A session that has just begun has a title now, and what can be done to it.
    $(".top").replaceChildren(...$(".top", page).children);
    const live = $("#live"), stays = "#live, #again, #new", mayAnswer = $("#again", drawn);
    if (!$("#again") && mayAnswer) live.after(mayAnswer);
    for (const one of [...main.children]) if (!one.matches(stays)) one.remove();
    for (const one of [...drawn.children]) if (!one.matches(stays)) live.before(localise(one));
    Object.assign(main.dataset, drawn.dataset);
    this.low = +main.dataset.low;
    this.high = +main.dataset.high;
    this.before = $("#before");
    this.after = $("#after");
    this.heights.clear();
    this.kept.clear();
    this.arrived?.();
    this.measure();
    this.fill();
    this.toEnd();
    steps();
  }

  // What is as it was stays the very same; what was opened, marked or shown raw stays so.
  merge(old, fresh) {
    const raws = all(".raw", old).map(one => [one.parentElement.id, one]);
    raws.forEach(([, one]) => one.remove());
    let was = old.firstElementChild;
    for (const one of [...fresh.children]) {
      this.restore(one);
      if (was?.isEqualNode(one)) { was = was.nextElementSibling; continue; }
      const next = was?.nextElementSibling;
      if (was) was.replaceWith(one); else old.append(one);
      was = next;
    }
    while (was) { const next = was.nextElementSibling; was.remove(); was = next; }
    raws.forEach(([id, one]) => document.getElementById(id)?.append(one));
  }

  restore(fresh) {
    for (const one of [fresh, ...all("[id], .thinking", fresh)]) {
      const was = one.id ? document.getElementById(one.id) : document.getElementById(one.closest("article")?.id)?.querySelector(".thinking");
      if (one.matches("details") && was?.matches("details")) one.open = was.open;
      if (was && one.matches("article, .run")) for (const kind of ["here", "unseen", "flash"]) one.classList.toggle(kind, was.classList.contains(kind));
    }
  }
}

// ---- one message after the other

// What keys go to: messages that are in view when one scrolls there, and runs of calls.
const ITEMS = "article, section > .run";
const stops = () => all(`#transcript :is(${ITEMS})`).filter(one => !one.parentElement.closest("details:not([open])"));
const near = y => document.elementFromPoint(innerWidth / 2, y)?.closest(ITEMS);
const marked = () => $("#transcript .here");
const inView = one => { const box = one.getBoundingClientRect(); return box.bottom > 60 && box.top < innerHeight; };
const here = () => { const one = marked(); return one && inView(one) ? one : near(80) || near(140) || near(innerHeight / 2); };
const number = one => one?.id.replace(/^r/, "");

const mark = (one, {block = "start"} = {}) => {
  marked()?.classList.remove("here");
  one.classList.add("here");
  one.scrollIntoView({block, behavior: "instant"});
  (one.matches("article") ? one : $("summary", one)).focus({preventScroll: true});
  if (one.id) history.replaceState(null, "", `#${number(one)}`);
};

// The next or the previous of a kind; from nowhere, the first that is in view counts too.
const step = async (on, kind) => {
  const from = marked() && inView(marked()) ? marked() : null;
  for (;;) {
    const many = stops();
    const place = from ? many.indexOf(from) : many.findIndex(one => one.getBoundingClientRect().bottom > 60);
    const beyond = on ? many.slice(from ? place + 1 : place) : many.slice(0, Math.max(place, 0)).reverse();
    const found = beyond.find(one => one.matches(kind));
    if (found) return mark(found);
    const chunk = on ? scroller.to + 1 : scroller.from - 1;
    if (chunk < scroller.first || chunk > scroller.last) return undefined;
    await scroller.show(chunk);
    if (from && !from.isConnected) return undefined;
  }
};

const goTo = async id => {
  if (/^s\d+$/.test(id) && document.getElementById(id)) {
    document.getElementById(id).scrollIntoView({block: "center", behavior: "instant"});
    return true;
  }
  if (!/^\d+$/.test(id)) return false;
  if (!document.getElementById(id)) {
    const {part, query} = main.dataset;
    const answer = await fetch(at(part, `at=${id}&${query}`));
    if (!answer.ok) return false;
    const found = await answer.json();
    if (!found.place) return false;
    const there = new URL(found.page, location.href), now = new URLSearchParams(query);
    if ((there.searchParams.get("tip") || "") !== (now.get("tip") || "")
      || (there.searchParams.get("all") || "") !== (now.get("all") || "")) {
      location.assign(`${found.page}#${found.n}`);
      return true;
    }
    id = String(found.n);
    const chunk = Math.floor((found.place - 1) / scroller.size);
    await scroller.show(chunk);
    if (!document.getElementById(id) && chunk > scroller.first) await scroller.show(chunk - 1);
  }
  const one = document.getElementById(id);
  if (!one) return false;
  for (let fold = one.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  const item = one.closest("article");
  mark(item, {block: "start"});
  if (one !== item) one.scrollIntoView({block: "center", behavior: "instant"});
  all(".flash").forEach(each => each.classList.remove("flash"));
  item.classList.add("flash");
  return true;
};

const stored = async one => {
  const answer = await fetch(at(main.dataset.raw, `n=${number(one)}&${main.dataset.query}`));
  if (!answer.ok) throw new Error(answer.statusText);
  return (await answer.json()).items[0];
};

const raw = async one => {
  if (!one?.matches("article")) return;
  const shown = $(".raw", one);
  if (shown) { shown.remove(); return; }
  const pre = document.createElement("pre");
  pre.className = "raw";
  try { pre.textContent = JSON.stringify(await stored(one), null, 2); } catch (error) { pre.textContent = error.message; }
  one.append(pre);
};

const fold = one => {
  const many = one ? [...(one.matches("details") ? [one] : []), ...all("details", one)] : [];
  const open = many.some(each => !each.open);
  many.forEach(each => { each.open = open; });
};

const foldAll = () => scroller.hold(() => {
  const many = all("details", main);
  scroller.isUnfolded = many.some(one => !one.open);
  many.forEach(one => { one.open = scroller.isUnfolded; });
  scroller.heights.clear();
  scroller.measure();
  scroller.fill();
});

const put = async (text, words) => {
  try { await navigator.clipboard.writeText(text); tell(words); } catch { tell("the browser does not allow copying here"); }
};
const copyLink = one => put(location.origin + main.dataset.page + (one ? `#${number(one)}` : ""), "link copied");
const copyText = async one => {
  if (!one?.matches("article")) return;
  const {message: {content}} = await stored(one);
  const parts = Array.isArray(content) ? content : [content];
  const text = parts.map(part => part?.text ?? part).filter(part => typeof part === "string").join("\n");
  await put(text || one.innerText, "message copied");
};
const stepTo = way => location.assign(at(main.dataset.beside, `step=${way}&${sessionStorage.getItem(`list ${base}`) || ""}`));
const steps = () => all("[data-step]", main).forEach(one => {
  if (one.tagName === "A") one.addEventListener("click", event => { event.preventDefault(); stepTo(one.dataset.step); });
});
const otherBranch = way => all(`.branches a[data-way=${way}]`, main).at(-1)?.click();

const follow = () => {
  scroller.isFollowing = !scroller.isFollowing;
  if (scroller.isFollowing) end();
  tell(scroller.isFollowing ? "following" : "not following");
};

const end = async () => { await scroller.show(scroller.last); scroller.toEnd(); $("#new").hidden = true; };
const begin = async () => { await scroller.show(scroller.first); scrollTo({top: 0, behavior: "instant"}); };

const row = on => {
  const many = all("main li > a");
  const from = many.indexOf(document.activeElement);
  many.at(from < 0 ? 0 : Math.min(Math.max(from + (on ? 1 : -1), 0), many.length - 1))?.focus();
};

// ---- what is offered for the message or the block of text that one points at

const float = (kind, ...buttons) => {
  const holder = document.createElement("div");
  holder.className = `float ${kind}`;
  holder.hidden = true;
  for (const [words, label, act] of buttons) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = words;
    button.setAttribute("aria-label", label);
    button.addEventListener("click", () => act(holder.of));
    holder.append(button);
  }
  document.body.append(holder);
  return holder;
};
const place = (holder, one) => {
  holder.of = one;
  holder.hidden = !one;
  if (!one) return;
  const box = one.getBoundingClientRect();
  // On the upper edge of a message, where it hides none of its text; below the bar of the page.
  const top = one.matches("article") ? Math.max(box.top - holder.offsetHeight + 6, 60) : box.top + 4;
  holder.style.top = `${top + scrollY}px`;
  holder.style.left = `${box.right - holder.offsetWidth - 4}px`;
};
const forkAt = async one => {
  const answer = await fetch(main.dataset.fork, {method: "POST", body: new URLSearchParams({at: number(one)})});
  if (answer.ok) location.assign(answer.url); else tell(await why(answer));
};
const floats = () => {
  const tools = float("tools", ["copy", "Copy the message", copyText], ["link", "Copy a link to the message", copyLink],
    ["raw", "Show the message as it is stored", raw],
    ...(main.dataset.fork ? [["fork", "Fork the session after this message", forkAt]] : []),
    ...(form ? [["edit", "Edit your message: another branch", edit], ["again", "Answer again: another branch", again]] : []));
  const text = float("text", ["copy", "Copy this text", one => put($("code", one)?.textContent ?? one.textContent, "copied")]);
  const [toEdit, toAnswer] = all("button", tools).slice(-2);
  const show = article => {
    if (form) { toEdit.hidden = !article?.matches(".user"); toAnswer.hidden = !article?.matches(".assistant"); }
    place(tools, article);
  };
  main.addEventListener("pointerover", ({target}) => {
    show(target.closest("section article"));
    place(text, target.closest("pre"));
  });
  main.addEventListener("focusin", ({target}) => { if (target.matches("section article")) show(target); });
  scroller.changed = () => [tools, text].forEach(one => place(one, one.of?.isConnected ? one.of : null));
};

const keys = {
  j: () => main ? step(true, "*") : row(true),
  k: () => main ? step(false, "*") : row(false),
  n: () => main && step(true, ".user"),
  p: () => main && step(false, ".user"),
  g: () => main && begin(),
  G: () => main && end(),
  e: () => main && fold(here()),
  E: () => main && foldAll(),
  r: () => main && raw(here()),
  c: () => main && copyText(here()),
  f: () => main && follow(),
  y: () => main && copyLink(here()),
  b: () => main && otherBranch("before"),
  B: () => main && otherBranch("after"),
  u: () => form && edit(marked()?.matches("article.user") ? marked() : all("#transcript section article.user").at(-1)),
  R: () => form && again(marked()?.matches("article.assistant") ? marked() : null),
  i: () => form?.content.focus(),
  a: () => $("#choose")?.click(),
  m: () => $("[data-choice]")?.click(),
  t: () => { const menu = $(".menu"); if (menu) { menu.open = !menu.open; $("input", menu).focus(); } },
  "*": () => $("button.pin")?.click(),
  ".": () => stop(),
  s: () => $("#side") && acts.side(),
  l: () => location.assign(`${base}/`),
  N: () => location.assign(`${base}/new`),
  T: () => acts.theme(),
  "[": () => main && stepTo("newer"),
  "]": () => main && stepTo("older"),
  "/": () => search(),
  "?": () => acts.help(),
};
const search = () => {
  const own = $("main [type=search]");
  if (!own && sideSearch && !sideSearch.checkVisibility()) acts.side();
  (own || sideSearch)?.focus();
};
const ANSWERS = {KeyY: "yes", KeyN: "no", KeyA: "always"};
addEventListener("keydown", event => {
  if (event.altKey && ANSWERS[event.code] && $(".ask")) {
    event.preventDefault();
    const button = $(`.ask button[value=${ANSWERS[event.code]}]`);
    // As for the pointer: what has just appeared is read first.
    if (getComputedStyle(button).pointerEvents !== "none") button.click();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const arrow = !main && {ArrowDown: "j", ArrowUp: "k"}[event.key];
  if (event.target.closest("input, textarea, select, dialog") && !(arrow && event.target.matches("[type=search]"))) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const key = arrow || event.key;
  const act = Object.hasOwn(keys, key) && keys[key];
  if (act) { event.preventDefault(); act(); }
});

// ---- what is written meanwhile

let scroller = null;
let source = null;
let isStale = false, isChanged = false, isAway = false, isOver = false;
let refreshing = null;

// Bring the page up to date; a caller while that is done waits for one more round.
const refresh = () => {
  isStale = true;
  refreshing ||= (async () => {
    try {
      while (isStale || isChanged) {
        const isNew = isChanged;
        isStale = isChanged = false;
        await (isNew ? scroller.redraw() : scroller.refresh());
        if ($("#status").textContent.startsWith("server not reachable")) tell("");
      }
    } catch {
      isStale = true;
      tell("server not reachable; retrying");
      setTimeout(refresh, 2000);
    } finally { refreshing = null; }
  })();
  return refreshing;
};

const over = words => { isOver = true; source.close(); tell(words); };

const retitle = title => {
  $("h1").textContent = title || main.dataset.key;
  document.title = `${title || main.dataset.key} · nacre`;
};

const listen = () => {
  if (source || isOver || document.hidden || +main.dataset.tip || !form) return;
  source = new EventSource(`${main.dataset.api}/events?after=${main.dataset.n}`);
  source.addEventListener("msg", refresh);
  for (const kind of ["sum", "trunc", "head"]) source.addEventListener(kind, () => { isChanged = true; refresh(); });
  source.addEventListener("meta", ({data}) => {
    const fields = JSON.parse(data).data.meta;
    if ("title" in fields) retitle(fields.title);
    const chosen = fields.chosen_model && $("[data-choice]");
    if (chosen) chosen.textContent = fields.chosen_model;
    drawSide();
  });
  // Why there is no answer, for a page that did not follow the turn.
  source.addEventListener("x.failed", ({data}) => { if (!turn && !$("#live .doing")) showFailure(JSON.parse(data).data.reason); });
  source.addEventListener("deleted", () => over("deleted"));
  source.addEventListener("open", ({data}) => {
    // The first record of a session has the same name.
    const {generation} = data ? JSON.parse(data) : main.dataset;
    main.dataset.generation ||= generation;
    if (generation !== main.dataset.generation) { over("a new session was started; reload"); return; }
    if (isAway) tell("");
    isAway = false;
    if (isStale) refresh();
  });
  source.addEventListener("error", () => {
    isAway = true;
    tell("connecting");
    // The browser itself goes on from the last number that it had; where it has given up, we do.
    if (source.readyState === EventSource.CLOSED) { source = null; setTimeout(listen, 3000); }
  });
};

// A browser has six lines to a server, for all its tabs: one that is hidden keeps none.
const lookedAt = () => {
  if (!document.hidden) { if (+main.dataset.n) listen(); return; }
  source?.close();
  source = null;
};

const form = $("#say");

// ---- drafts: what is written and not yet stored is kept by the browser, for each session

const isNew = () => location.pathname === `${base}/new`;
const draftName = () => isNew() ? `${base}/new` : main.dataset.page;
// A browser may have no room for it, or not want to keep anything.
const putBy = (name, value) => {
  try { localStorage.removeItem(name); if (value) localStorage.setItem(name, value); } catch { /* then it is not kept */ }
};
const keepDraft = () => {
  const {content: {value: content}, id: {value: id}, said = null, edited = "", earlier = ""} = form;
  putBy(`draft ${draftName()}`, content || earlier ? JSON.stringify({content, id, said, edited, earlier}) : "");
};
const keepFiles = () => putBy(`files ${draftName()}`, attached.length ? JSON.stringify(attached) : "");
const forget = name => { putBy(`draft ${name}`); putBy(`files ${name}`); };
const isDraft = name => /^(draft|files) /.test(name);
// What was sent is in the session: what is kept now is what was written since.
const forgetSent = name => { forget(name); keepDraft(); keepFiles(); };
const takeUp = () => {
  const {content = "", id, said = null, edited = "", earlier = ""} = JSON.parse(localStorage.getItem(`draft ${draftName()}`) || "{}");
  const files = JSON.parse(localStorage.getItem(`files ${draftName()}`) || "[]");
  if (content) form.content.value = content;
  // Sent again under its id, what the server has already is not stored twice.
  if (said) { form.said = said; form.id.value = id; }
  if (edited) showEdit(edited, earlier);
  attached.push(...files);
  drawFiles();
  if (sessionStorage.getItem(`waiting ${draftName()}`)) wait(true);
};
// A message that is sent while an answer is written waits for its end, also over a reload; a tab that is closed sends nothing.
const wait = isWaiting => {
  form.isWaiting = isWaiting;
  $("#waiting").hidden = !isWaiting;
  if (isWaiting) sessionStorage.setItem(`waiting ${draftName()}`, "1"); else sessionStorage.removeItem(`waiting ${draftName()}`);
};

// ---- a turn: what the person said and what the model writes stand below the transcript until they are in it

const stop = () => { if (turn) fetch(`${main.dataset.api}/stop`, {method: "POST"}); };
let turn = null;

const draft = (kind, nth = "") => {
  const one = document.createElement("article");
  one.className = `${kind} draft`;
  one.dataset.step = nth;
  const head = document.createElement("h2"), name = document.createElement("b"), body = document.createElement("div");
  name.textContent = kind;
  head.append(name);
  body.className = "said";
  body.dir = "auto";
  one.append(head, body);
  turn.doing.before(one);
  return body;
};

// What has come into the transcript is no longer shown below it: at once, so that nothing is there twice or moves.
const settle = () => {
  if (!turn) return;
  for (const one of all("#transcript section article")) {
    if (+one.id <= turn.base) continue;
    if (one.matches(".user")) $("#live .user")?.remove();
    if (one.matches(".assistant")) turn.seen.add(one.id);
  }
  all("#live .assistant").forEach(one => { if (+one.dataset.step < turn.seen.size) one.remove(); });
};

const busy = isBusy => {
  form.classList.toggle("busy", isBusy);
  $("#stop").hidden = !isBusy;
  $("#again")?.toggleAttribute("hidden", isBusy);
};

const addDoing = words => {
  const doing = document.createElement("p");
  doing.className = "doing";
  doing.textContent = words;
  $("#live").append(doing);
  return doing;
};
const showFailure = (reason, doing = addDoing("")) => {
  doing.textContent = reason;
  doing.classList.add("wrong");
  doing.setAttribute("role", "alert");
};

const open = () => {
  all("#live :is(.draft, .doing)").forEach(one => one.remove());
  const doing = addDoing("…");
  turn = {base: +main.dataset.n, seen: new Set(), doing};
  busy(true);
  tell("");
};

const hear = ({name, data}) => {
  const follows = scroller.isAtEnd, live = $("#live");
  if (name === "begin") {
    turn.base = data.base;
    const said = $("#live .user .said");
    if (said && data.html) { const files = $("p.attachment", said); said.replaceChildren(parsed(data.html)); if (files) said.append(files); }
    settle();
  } else if (name === "draft") {
    const body = $(`#live .assistant[data-step="${data.step}"] .said`) || (data.step >= turn.seen.size && draft("assistant", data.step));
    if (body) {
      while (body.children.length > data.keep) body.lastElementChild.remove();
      body.append(parsed(data.html));
    }
  } else if (name === "doing") turn.doing.replaceChildren(parsed(data.html));
  else if (name === "questions") {
    const asked = $(".ask", live) ? "" : document.activeElement;
    all(".ask", live).forEach(one => one.remove());
    live.append(parsed(data.html));
    if (data.html && asked === document.body) $(".ask", live).scrollIntoView({block: "nearest"});
  } else if (name === "problem") throw Object.assign(new Error(data.detail), {code: data.code});
  if (name === "stored") { listen(); if (turn.draft) forgetSent(turn.draft); }
  if (follows) scroller.toEnd();
};

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const many = (left + value).split("\n\n");
    left = many.pop();
    for (const one of many) {
      const fields = Object.fromEntries(one.split("\n").map(line => line.split(/: (.*)/s).slice(0, 2)));
      if (fields.data) yield {name: fields.event, data: JSON.parse(fields.data)};
    }
  }
}

// Follow a turn to its end; true if what was said is stored, whatever came of it.
const watch = async response => {
  let problem = null;
  try {
    if (!response.ok) throw new Error(await why(response));
    for await (const event of events(response.body)) hear(event);
  } catch (error) { problem = error; }
  const {doing, base: before} = turn;
  const isStored = await fetch(at(main.dataset.part, `chunk=0&${main.dataset.query}`)).then(one => one.ok, () => false);
  if (isStored) await refresh();
  const isSaid = isStored && +main.dataset.n > before;
  all("#live .draft, #live .ask", document).forEach(one => { if (isSaid || !one.matches(".draft")) one.remove(); });
  if (!problem || problem.code === "stopped") {
    doing.remove();
    if (problem) tell("stopped");
  } else {
    showFailure(problem.message, doing);
    if (!isSaid) all("#live .draft").forEach(one => one.remove());
  }
  if (isSaid && turn.draft) forgetSent(turn.draft);
  turn = null;
  busy(false);
  if (isStored) listen();
  drawSide();
  if (form.isWaiting) { wait(false); if (isSaid || !problem) say(); }
  return isSaid;
};

const send = async message => {
  open();
  turn.draft = message.again ? "" : draftName();
  const isFirst = isNew();
  // From now on a reload leads to the session, and to a question that waits there.
  if (isFirst) history.replaceState(null, "", main.dataset.page);
  if (message.content || message.files?.length) {
    const body = draft("user"), text = document.createElement("p");
    text.className = "plain";
    text.textContent = message.content;
    body.append(text);
    if (message.files?.length) {
      const names = document.createElement("p");
      names.className = "attachment";
      names.textContent = message.files.map(one => one.name).join(", ");
      body.append(names);
    }
    $("main > .welcome")?.remove();
  }
  scroller.toEnd();
  const response = await fetch(main.dataset.turn, {
    method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(message),
  }).catch(error => new Response(JSON.stringify({detail: error.message}), {status: 503}));
  const isSaid = await watch(response);
  if (isFirst && isSaid) { isChanged = true; await refresh(); }
  if (isFirst && !isSaid) history.replaceState(null, "", `${base}/new`);
  return isSaid;
};

const say = async () => {
  const area = form.content, content = area.value.trim();
  const files = attached.map(({name, data}) => ({name, data}));
  if (!content && !files.length) return;
  const {edited, chosen} = form;
  if (form.said !== content) form.id.value = crypto.getRandomValues(new Uint32Array(4)).join("-");
  form.said = content;
  keepDraft();
  $("#refused").textContent = "";
  const kept = attached.splice(0);
  area.value = leaveEdit();
  drawFiles();
  if (edited) $(`#transcript article[id="${edited}"]`)?.classList.add("gone");
  if (await send({content, files, id: form.id.value, edit: edited || "", model: chosen || ""})) { form.said = null; return; }
  // Nothing is stored: what was sent stands before what was written since.
  area.value = area.value ? `${content}\n\n${area.value}` : content;
  attached.unshift(...kept);
  drawFiles();
  keepDraft();
  keepFiles();
};

// ---- edit and answer again: both begin another branch

const again = one => { if (!turn) send({again: one ? number(one) : "last"}); };
// What was written before an edit is there again when that is over.
const showEdit = (edited, earlier) => {
  Object.assign(form, {edited, earlier});
  $("#editing").hidden = false;
  $("#editing span").textContent = `Editing #${edited}: what follows it stays on its own branch.`;
};
const leaveEdit = () => {
  const {earlier = ""} = form;
  Object.assign(form, {edited: "", earlier: ""});
  $("#editing").hidden = true;
  return earlier;
};
const edit = async one => {
  if (!one) return;
  const {message: {content}} = await stored(one);
  const parts = Array.isArray(content) ? content : [{type: "text", text: content}];
  const files = [], words = [];
  for (const part of parts) {
    const file = /^<file name="([^"\n]*)">\n(.*)\n<\/file>$/s.exec(part.text ?? "");
    const image = /^data:image\/(\w+);base64,(.*)$/s.exec(part.image_url?.url ?? "");
    if (file) files.push({name: file[1], data: base64(new TextEncoder().encode(file[2]))});
    else if (image) files.push({name: `image.${image[1]}`, data: image[2]});
    else if (typeof part.text === "string") words.push(part.text);
  }
  showEdit(number(one), form.edited ? form.earlier : form.content.value);
  form.content.value = words.join("\n");
  attached.splice(0, attached.length, ...files);
  drawFiles();
  keepDraft();
  keepFiles();
  form.content.focus();
};

// ---- attachments: by the button, by paste, by drop

const MAX_ATTACHED = 11e6;
const IMAGE = /\.(png|jpe?g|jpe|gif|webp)$/i;
const attached = [];
const base64 = bytes => {
  let text = "";
  for (let from = 0; from < bytes.length; from += 32768) text += String.fromCharCode(...bytes.subarray(from, from + 32768));
  return btoa(text);
};
const drawFiles = () => {
  const list = $("#files");
  list.hidden = !attached.length;
  form.content.required = !attached.length;
  list.replaceChildren(...attached.map((file, index) => {
    const item = document.createElement("li"), button = document.createElement("button");
    if (IMAGE.test(file.name)) {
      const image = document.createElement("img");
      image.src = `data:image/${file.name.split(".").pop().toLowerCase().replace("jpg", "jpeg")};base64,${file.data}`;
      image.alt = "";
      item.append(image);
    }
    button.type = "button";
    button.className = "plain";
    button.textContent = "×";
    button.setAttribute("aria-label", `Remove ${file.name}`);
    button.addEventListener("click", () => { attached.splice(index, 1); drawFiles(); keepFiles(); form.content.focus(); });
    item.append(file.name, button);
    return item;
  }));
};
// Why a file cannot be attached, in the server's words; "" if it can. Nobody learns of it only after sending.
const refusal = (name, bytes) => {
  const {text, image, files} = $("#choose").dataset;
  const isImage = IMAGE.test(name), most = +(isImage ? image : text);
  if (attached.length >= +files) return `a message has at most ${files} files`;
  if (bytes.length > most) return `has more than ${most.toLocaleString("en")} bytes: too many to attach; let the agent read it`;
  if (attached.reduce((sum, one) => sum + one.data.length, bytes.length * 4 / 3) > MAX_ATTACHED * 4 / 3) return "is too large together with the others";
  try { if (!isImage) new TextDecoder("utf-8", {fatal: true}).decode(bytes); } catch { return "is neither text nor an image: attach a PNG, JPEG, GIF, WebP or UTF-8 file"; }
  return "";
};
const attach = async files => {
  const refused = [];
  for (const file of [...files]) {
    const name = file.name || "file.txt";
    // A folder that was dropped cannot be read; what is too large need not be.
    const bytes = file.size > MAX_ATTACHED ? {length: file.size} : await file.arrayBuffer().then(found => new Uint8Array(found), () => null);
    const reason = bytes ? refusal(name, bytes) : "cannot be read; a folder cannot be attached";
    if (reason) refused.push(`${name} ${reason}`); else attached.push({name, data: base64(bytes)});
  }
  $("#refused").textContent = refused.join("\n");
  drawFiles();
  keepFiles();
  form.content.focus();
};
const attachments = () => {
  const choose = $("#choose"), button = $("#attach");
  button.hidden = false;
  button.addEventListener("click", () => choose.click());
  choose.addEventListener("change", async () => { await attach(choose.files); choose.value = ""; });
  form.addEventListener("paste", event => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    attach([...event.clipboardData.files]);
  });
  const isFiles = event => [...event.dataTransfer.types].includes("Files");
  addEventListener("dragover", event => { if (isFiles(event)) { event.preventDefault(); form.classList.add("drop"); } });
  addEventListener("dragleave", event => { if (!event.relatedTarget) form.classList.remove("drop"); });
  addEventListener("drop", event => {
    form.classList.remove("drop");
    if (!isFiles(event)) return;
    event.preventDefault();
    attach([...event.dataTransfer.files]);
  });
};

// ---- the model: chosen in a dialog; for a session that is not there yet, with its first message

const choice = button => {
  button.disabled = false;
  button.addEventListener("click", async event => {
    event.preventDefault();
    const dialog = $("#choice") || document.createElement("dialog");
    dialog.id = "choice";
    dialog.setAttribute("aria-label", "Model");
    document.body.append(dialog);
    dialog.textContent = "…";
    dialog.showModal();
    const answer = await fetch(at(button.dataset.choice, "part=1"));
    const heading = document.createElement("h2"), close = document.createElement("button");
    heading.textContent = "Model";
    close.textContent = "Close";
    close.type = "button";
    close.addEventListener("click", () => dialog.close());
    dialog.replaceChildren(heading, answer.ok ? parsed(await answer.text()) : await why(answer), close);
    const chosen = all("[name=model]", dialog);
    if (form.chosen !== undefined && !+main.dataset.n) chosen.forEach(one => one.setAttribute("aria-pressed", one.value === form.chosen));
    (chosen.find(one => one.ariaPressed === "true") || close).focus();
    dialog.addEventListener("submit", submitted => {
      if (+main.dataset.n) return;
      submitted.preventDefault();
      form.chosen = submitted.submitter.value;
      button.textContent = form.chosen || submitted.submitter.textContent;
      dialog.close();
    });
  });
};

// ---- the list: what there was no time for is fetched when the page is there, unless somebody is using it

const list = $("main.list");
if (list) {
  sessionStorage.setItem(`list ${base}`, location.search.slice(1));
  const complete = async () => {
    const answer = await fetch(list.dataset.full);
    const fresh = answer.ok && $("main.list", parsed(await answer.text()));
    if (!fresh || list.contains(document.activeElement)) return;
    delete list.dataset.full;
    $("details.more", fresh)?.toggleAttribute("open", Boolean($("details.more", list)?.open));
    list.replaceChildren(...localise(fresh).children);
  };
  if (list.dataset.full) complete();
}

// ---- questions that wait for a person

addEventListener("submit", async event => {
  const sent = event.target;
  if (sent.matches("[action$='/logout']")) Object.keys(localStorage).filter(isDraft).forEach(one => localStorage.removeItem(one));
  if (sent.matches("[action*='/do/delete/']")) forget(main.dataset.page);
  if (!sent.matches(".ask")) return;
  event.preventDefault();
  const answer = await fetch(sent.action, {
    method: "POST", body: new URLSearchParams(new FormData(sent, event.submitter)), redirect: "manual",
  });
  if (answer.type !== "opaqueredirect") tell(await why(answer));
  if (answer.type === "opaqueredirect" || answer.status === 409) sent.remove();
});

if (main) {
  history.scrollRestoration = "manual";
  scroller = new Scroller();
  scroller.arrived = settle;
  const jump = document.createElement("button");
  jump.id = "new";
  jump.type = "button";
  jump.hidden = true;
  jump.textContent = "new messages ↓";
  jump.addEventListener("click", end);
  main.append(jump);
  addEventListener("scroll", () => { if (scroller.isAtEnd) jump.hidden = true; }, {passive: true});
  addEventListener("hashchange", () => goTo(location.hash.slice(1)));

  const seen = `seen ${main.dataset.page}`;
  const since = +localStorage.getItem(seen);
  const unseen = since && all("#transcript article").find(one => +one.id > since);
  if (unseen) (unseen.closest(".run:not([open])") || unseen).classList.add("unseen");
  addEventListener("pagehide", () => { if (+main.dataset.n) localStorage.setItem(seen, main.dataset.n); });

  const wanted = location.hash.slice(1) || (+main.dataset.anchor ? main.dataset.anchor : "");
  if (form) takeUp();
  const show = async () => {
    if (!(wanted && await goTo(wanted))) scroller.toEnd();
    scroller.soon();
    if (+main.dataset.n) listen();
    // A turn that was begun before the page was loaded is followed from where it is.
    if (!form) return;
    const running = "busy" in $("#live").dataset && await fetch(main.dataset.turn);
    if (running?.status === 200) { open(); watch(running); } else if (form.isWaiting) { wait(false); say(); }
  };
  show();

  if (form) {
    form.addEventListener("submit", event => {
      event.preventDefault();
      if (turn) wait(true); else say();
    });
    form.content.addEventListener("keydown", event => {
      // A touch screen has no Shift Enter, and a button to send.
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !isTouched.matches) { event.preventDefault(); form.requestSubmit(); }
    });
    main.addEventListener("submit", event => {
      if (event.target.id === "again") { event.preventDefault(); again(null); }
    });
    $("#editing button").addEventListener("click", () => {
      form.content.value = leaveEdit();
      attached.length = 0;
      drawFiles();
      keepDraft();
      keepFiles();
    });
    $("#waiting button").addEventListener("click", () => { wait(false); form.content.focus(); });
    form.content.addEventListener("input", keepDraft);
    $("#stop").addEventListener("click", stop);
    all("[data-choice]").forEach(choice);
    // A reader at the end still sees it when the field grows.
    new ResizeObserver(() => { if (scroller.isFollowing && scroller.isAtEnd) scroller.toEnd(); }).observe(form);
    attachments();
  }
  steps();
  floats();
  document.addEventListener("visibilitychange", lookedAt);
  if (!calm.matches) html.classList.add("moves");
}
