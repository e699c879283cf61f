"use strict";
// The page works without this; with it, messages are fetched as they come into view, followed and streamed.

const $ = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const html = document.documentElement;
const base = html.dataset.base;
const main = $("#transcript");
const calm = matchMedia("(prefers-reduced-motion: reduce)");

const tell = words => { const status = $("#status"); if (status) status.textContent = words ? ` · ${words}` : ""; };
const ours = `${origin}${base}/`;
const local = href => href && URL.canParse(href, ours) && new URL(href, ours).href.startsWith(ours) ? href : ours;
const at = (address, query) => `${address}${address.includes("?") ? "&" : "?"}${query}`;
const parsed = html => { const holder = document.createElement("template"); holder.innerHTML = html; return holder.content; };

// ---- logging in: the token may stand behind the address, where no server sees it

const login = async token => {
  const answer = await fetch($("#login").action, {
    method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify({token}),
  });
  if (answer.ok) location.replace(local(new URLSearchParams(location.search).get("next")));
  else $("#wrong").textContent = (await answer.json()).detail;
};
if ($("#login")) {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) { history.replaceState(null, "", location.pathname + location.search); login(given); }
  $("#login").addEventListener("submit", event => { event.preventDefault(); login(event.target.token.value); });
}

// ---- dark and light, and the help

const isDark = () => (html.dataset.theme
  || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const acts = {
  theme() {
    const theme = isDark() ? "light" : "dark";
    html.dataset.theme = theme;
    document.cookie = `theme=${theme}; path=${html.dataset.prefix || "/"}; max-age=31536000; samesite=strict`;
  },
  help() { const help = $("#help"); if (help.open) help.close(); else help.showModal(); },
};
all("[data-act]").forEach(button => {
  button.hidden = false;
  button.addEventListener("click", acts[button.dataset.act]);
});
addEventListener("pointerover", ({target}) => {
  if (target.matches?.("time")) target.title = new Date(target.dateTime).toLocaleString();
});

// ---- a transcript: a run of chunks between two gaps, which are as high as what is not there

class Scroller {
  constructor() {
    const facts = main.dataset;
    this.size = +facts.chunk;
    this.low = +facts.low;
    this.high = +facts.high;
    this.heights = new Map();
    this.kept = new Map();
    this.before = $("#before");
    this.after = $("#after");
    this.isFollowing = true;
    this.busy = null;
    this.measure();
    this.fill();
    addEventListener("scroll", () => this.soon(), {passive: true});
    addEventListener("resize", () => { this.heights.clear(); this.soon(); });
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
    const margin = 2 * innerHeight;
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
    this.busy = wanted.isFar ? this.jump(wanted.chunk) : this.add(wanted.chunk);
    try { await this.busy; } catch (error) { tell("server not reachable; scroll to retry"); this.busy = null; return; }
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
    if (found && this.isUnfolded) all("details", found).forEach(one => { one.open = true; });
    return found;
  }

  async add(chunk) {
    const section = await this.get(chunk);
    if (!section || (chunk !== this.from - 1 && chunk !== this.to + 1)) return;
    const isAbove = chunk < this.from;
    this.hold(() => {
      (isAbove ? this.before.after(section) : this.after.before(section));
      this.measure();
      const many = this.sections;
      if (many.length > 9) (isAbove ? many.at(-1) : many[0]).remove();
      this.fill();
    });
  }

  async jump(chunk) {
    const section = await this.get(chunk);
    if (!section) return;
    this.sections.forEach(one => one.remove());
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

  get isAtEnd() {
    return this.to >= this.last && scrollY + innerHeight > html.scrollHeight - 120;
  }

  toEnd() { scrollTo({top: html.scrollHeight, behavior: "instant"}); }

  // Bring the end up to date: what is new is put there, what is as it was stays as it is.
  async refresh() {
    const follows = this.isFollowing && this.isAtEnd;
    for (let chunk = this.last; ; chunk++) {
      const section = await this.get(chunk, true);
      if (!section) break;
      this.high = Math.max(this.high, +section.dataset.high);
      main.dataset.n = section.dataset.n;
      const live = +section.dataset.live;
      $("#count").textContent = `${live.toLocaleString("en")} message${live === 1 ? "" : "s"}`;
      if (chunk <= this.to) this.merge($(`section[data-chunk="${chunk}"]`, main), section);
      else if (chunk === this.to + 1 && follows) this.after.before(section);
      if (chunk >= this.last) break;
    }
    $("main > .none")?.remove();
    this.measure();
    this.fill();
    if (follows) this.toEnd(); else $("#new").hidden = false;
    this.soon();
  }

  // What is as it was stays the very same; what was opened, marked or shown raw stays so.
  merge(old, fresh) {
    if (!old) return this.after.before(fresh);
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
      const was = one.id ? document.getElementById(one.id) : $(".thinking", document.getElementById(one.closest("article")?.id));
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
const beside = way => location.assign(at(main.dataset.beside, `step=${way}&${sessionStorage.getItem(`list ${base}`) || ""}`));

const follow = () => {
  scroller.isFollowing = !scroller.isFollowing;
  if (scroller.isFollowing) end();
  tell(scroller.isFollowing ? "following" : "not following");
};

const end = async () => { await scroller.show(scroller.last); scroller.toEnd(); $("#new").hidden = true; };
const begin = async () => { await scroller.show(scroller.first); scrollTo({top: 0, behavior: "instant"}); };

const row = on => {
  const many = all("main li > a");
  const at = many.indexOf(document.activeElement);
  many.at(at < 0 ? 0 : Math.min(Math.max(at + (on ? 1 : -1), 0), many.length - 1))?.focus();
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
  holder.style.top = `${box.top + scrollY + 4}px`;
  holder.style.left = `${box.right - holder.offsetWidth - 4}px`;
};
const forkAt = async one => {
  const answer = await fetch(main.dataset.fork, {method: "POST", body: new URLSearchParams({at: number(one)})});
  if (answer.ok) location.assign(answer.url); else tell((await answer.json()).detail);
};
const floats = () => {
  const tools = float("tools", ["copy", "Copy the message", copyText], ["link", "Copy a link to the message", copyLink],
    ["raw", "Show the message as it is stored", raw],
    ...(main.dataset.fork ? [["fork", "Fork the session after this message", forkAt]] : []));
  const text = float("text", ["copy", "Copy this text", one => put(one.textContent, "copied")]);
  main.addEventListener("pointerover", ({target}) => {
    place(tools, target.closest("article"));
    place(text, target.closest("pre"));
  });
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
  "[": () => main && beside("newer"),
  "]": () => main && beside("older"),
  i: () => $("#say textarea")?.focus(),
  "/": () => $("[type=search]")?.focus(),
  "?": () => acts.help(),
};
addEventListener("keydown", event => {
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
let isRefreshing = false, isStale = false, isAway = false, isOver = false;

const refresh = async () => {
  if (isRefreshing) { isStale = true; return; }
  isRefreshing = true;
  try {
    do {
      isStale = false;
      await scroller.refresh();
      $("#live .user")?.remove();
    } while (isStale);
  } catch { isStale = true; tell("server not reachable; retrying"); } finally { isRefreshing = false; }
};

const over = words => { isOver = true; source.close(); tell(words); };

const listen = () => {
  if (source || isOver || document.hidden || +main.dataset.tip || !$("#say")) return;
  source = new EventSource(`${main.dataset.api}/events?after=${main.dataset.n}`);
  source.addEventListener("msg", refresh);
  for (const kind of ["sum", "trunc", "head"]) {
    source.addEventListener(kind, () => tell("the history was changed; reload to see it"));
  }
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

// ---- writing

const piece = (kind, text) => {
  const one = document.createElement("article");
  one.className = kind;
  const head = document.createElement("h2"), name = document.createElement("b"), body = document.createElement("div");
  name.textContent = kind.split(" ")[0];
  head.append(name);
  body.className = "plain";
  body.textContent = text;
  one.append(head, body);
  $("#live").append(one);
  return body;
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

const say = async form => {
  const area = form.content, content = area.value.trim();
  if (!content) return;
  const live = $("#live");
  live.textContent = "";
  piece("user", content);
  const answer = piece("assistant writing", "");
  const doing = document.createElement("p");
  doing.className = "doing";
  doing.textContent = "…";
  answer.after(doing);
  area.value = "";
  form.classList.add("busy");
  $("#stop").hidden = false;
  scroller.toEnd();
  const hear = ({name, data}) => {
    const follows = scroller.isAtEnd;
    if (name === "text") { answer.textContent += data.text; doing.textContent = ""; }
    if (name === "thought") doing.textContent = "thinking …";
    if (name === "notice") doing.textContent = data.text;
    if (name === "called") { answer.textContent = ""; doing.replaceChildren(parsed(data.html), " …"); }
    if (name === "question") { answer.textContent = ""; live.append(parsed(data.html)); doing.textContent = "waiting for you"; }
    if (name === "returned") { all(".ask", live).forEach(one => one.remove()); doing.textContent = "…"; }
    if (name === "problem") throw new Error(data.detail);
    listen();
    if (follows) scroller.toEnd();
  };
  try {
    if (form.said !== content) form.id.value = crypto.getRandomValues(new Uint32Array(4)).join("-");
    form.said = content;
    const response = await fetch(main.dataset.turn, {
      method: "POST", body: new URLSearchParams({content, id: form.id.value}),
    });
    if (!response.ok) throw new Error((await response.json()).detail);
    for await (const event of events(response.body)) hear(event);
    form.said = null;
    await refresh();
    live.textContent = "";
    if (location.pathname === `${base}/new`) history.replaceState(null, "", main.dataset.page);
  } catch (error) {
    doing.textContent = error.message;
    doing.classList.add("wrong");
    doing.setAttribute("role", "alert");
    if (!area.value) area.value = content;
  } finally {
    form.classList.remove("busy");
    $("#stop").hidden = true;
    listen();
  }
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
    list.replaceChildren(...fresh.children);
  };
  if (list.dataset.full) complete();
}

// ---- questions that wait for a person

addEventListener("submit", async event => {
  const form = event.target;
  if (!form.matches(".ask")) return;
  event.preventDefault();
  const answer = await fetch(form.action, {
    method: "POST", body: new URLSearchParams(new FormData(form, event.submitter)), redirect: "manual",
  });
  if (answer.type !== "opaqueredirect") tell((await answer.json()).detail);
  if (answer.type === "opaqueredirect" || answer.status === 409) form.remove();
});

if (main) {
  history.scrollRestoration = "manual";
  scroller = new Scroller();
  const jump = document.createElement("button");
  jump.id = "new";
  jump.type = "button";
  jump.hidden = true;
  jump.textContent = "new messages ↓";
  jump.addEventListener("click", end);
  document.body.append(jump);
  addEventListener("scroll", () => { if (scroller.isAtEnd) jump.hidden = true; }, {passive: true});
  addEventListener("hashchange", () => goTo(location.hash.slice(1)));

  const seen = `seen ${main.dataset.page}`;
  const since = +localStorage.getItem(seen);
  const unseen = since && all("#transcript article").find(one => +one.id > since);
  if (unseen) (unseen.closest(".run:not([open])") || unseen).classList.add("unseen");
  addEventListener("pagehide", () => { if (+main.dataset.n) localStorage.setItem(seen, main.dataset.n); });

  const wanted = location.hash.slice(1) || (+main.dataset.anchor ? main.dataset.anchor : "");
  const open = async () => {
    if (!(wanted && await goTo(wanted))) scroller.toEnd();
    scroller.soon();
    if (+main.dataset.n) listen();
  };
  open();

  const form = $("#say");
  form?.addEventListener("submit", event => { event.preventDefault(); if (!form.classList.contains("busy")) say(form); });
  form?.content.addEventListener("keydown", event => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
  });
  all("[data-step]").forEach(one => {
    one.addEventListener("click", event => { event.preventDefault(); beside(one.dataset.step); });
  });
  floats();
  document.addEventListener("visibilitychange", lookedAt);
  $("#stop")?.addEventListener("click", () => fetch(`${main.dataset.api}/stop`, {method: "POST"}));
  if (!calm.matches) html.classList.add("moves");
}
