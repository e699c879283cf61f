"use strict";
// The page works without this; with it, messages are fetched as they come into view, followed and streamed.

const $ = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const main = $("#transcript");
const calm = matchMedia("(prefers-reduced-motion: reduce)");

const tell = words => { const status = $("#status"); if (status) status.textContent = words ? ` · ${words}` : ""; };
const local = href => href && href.startsWith("/") && !/^\/[/\\]/.test(href) ? href : "/";

// ---- logging in: the token may stand behind the address, where no server sees it

const login = async token => {
  const answer = await fetch("/login", {
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

const isDark = () => (document.documentElement.dataset.theme
  || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const acts = {
  theme() {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    document.cookie = `theme=${theme}; path=/; max-age=31536000; samesite=strict`;
  },
  help() { const help = $("#help"); if (help.open) help.close(); else help.showModal(); },
};
all("[data-act]").forEach(button => {
  button.hidden = false;
  button.addEventListener("click", acts[button.dataset.act]);
});
all("time[datetime]").forEach(one => { one.title = new Date(one.dateTime).toLocaleString(); });

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
    try { await this.busy; } catch (error) { tell("not reached; scroll to try again"); this.busy = null; return; }
    this.busy = null;
    this.soon();
  }

  async get(chunk, isFresh = false) {
    if (!isFresh && chunk !== this.last && this.kept.has(chunk)) return this.parsed(this.kept.get(chunk));
    const {part, query} = main.dataset;
    const answer = await fetch(`${part}${part.includes("?") ? "&" : "?"}chunk=${chunk}&${query}`);
    if (!answer.ok) throw new Error(answer.statusText);
    const text = await answer.text();
    this.kept.set(chunk, text);
    if (this.kept.size > 40) this.kept.delete(this.kept.keys().next().value);
    return this.parsed(text);
  }

  parsed(text) {
    const holder = document.createElement("template");
    holder.innerHTML = text;
    return holder.content.querySelector("section");
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
    return this.to >= this.last && scrollY + innerHeight > document.documentElement.scrollHeight - 120;
  }

  toEnd() { scrollTo({top: document.documentElement.scrollHeight, behavior: "instant"}); }

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

  merge(old, fresh) {
    if (!old) return this.after.before(fresh);
    for (const one of [...fresh.children]) {
      const was = one.id && document.getElementById(one.id);
      if (!was || was.parentElement !== old) { if (one.matches("article") && !was) old.append(one); continue; }
      const opened = all("details", was);
      all("details", one).forEach((each, at) => { if (opened[at]) each.open = opened[at].open; });
      one.className = was.className;
      if (!was.isEqualNode(one)) was.replaceWith(one);
    }
  }
}

// ---- one message after the other

const near = y => document.elementFromPoint(innerWidth / 2, y)?.closest("article");
const marked = () => $("article.here");
const inView = one => { const box = one.getBoundingClientRect(); return box.bottom > 0 && box.top < innerHeight; };
const here = () => { const one = marked(); return one && inView(one) ? one : near(24) || near(96) || near(innerHeight / 2); };

const mark = (one, {block = "start"} = {}) => {
  marked()?.classList.remove("here");
  one.classList.add("here");
  one.scrollIntoView({block, behavior: "instant"});
  one.focus({preventScroll: true});
  if (one.id) history.replaceState(null, "", `#${one.id}`);
};

// The next or the previous of a kind; from nowhere, the first that is in view counts too.
const step = async (on, kind) => {
  const from = marked() && inView(marked()) ? marked() : null;
  for (;;) {
    const many = all("#transcript article");
    const at = from ? many.indexOf(from) : many.findIndex(one => one.getBoundingClientRect().bottom > 24);
    const beyond = on ? many.slice(from ? at + 1 : at) : many.slice(0, Math.max(at, 0)).reverse();
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
    const answer = await fetch(`${part}${part.includes("?") ? "&" : "?"}at=${id}&${query}`);
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
  if (one.matches("details")) one.open = true;
  mark(one.closest("article"), {block: "start"});
  if (one.matches("details")) one.scrollIntoView({block: "center", behavior: "instant"});
  return true;
};

const raw = async one => {
  if (!one) return;
  const shown = $(".raw", one);
  if (shown) { shown.remove(); return; }
  const {raw: address} = main.dataset;
  const answer = await fetch(`${address}${address.includes("?") ? "&" : "?"}n=${one.id}&${main.dataset.query}`);
  const pre = document.createElement("pre");
  pre.className = "raw";
  pre.textContent = answer.ok ? JSON.stringify((await answer.json()).items[0], null, 2) : answer.statusText;
  one.append(pre);
};

const fold = one => {
  const many = one ? all("details", one) : [];
  const open = many.some(each => !each.open);
  many.forEach(each => { each.open = open; });
};

const copy = async one => {
  const link = location.origin + main.dataset.page + (one ? `#${one.id}` : "");
  try { await navigator.clipboard.writeText(link); tell("link copied"); } catch { tell(link); }
};

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

const keys = {
  j: () => main ? step(true, "article") : row(true),
  k: () => main ? step(false, "article") : row(false),
  n: () => main && step(true, ".user"),
  p: () => main && step(false, ".user"),
  g: () => main && begin(),
  G: () => main && end(),
  e: () => main && fold(here()),
  r: () => main && raw(here()),
  f: () => main && follow(),
  y: () => main && copy(here()),
  i: () => $("#say textarea")?.focus(),
  "/": () => $("[type=search]")?.focus(),
  "?": () => acts.help(),
};
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, dialog")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const act = Object.hasOwn(keys, event.key) && keys[event.key];
  if (act) { event.preventDefault(); act(); }
});

// ---- what is written meanwhile

let scroller = null;
let source = null;
let isRefreshing = false, isStale = false;

const refresh = async () => {
  if (isRefreshing) { isStale = true; return; }
  isRefreshing = true;
  try {
    do {
      isStale = false;
      await scroller.refresh();
      $("#live .user")?.remove();
    } while (isStale);
  } catch { tell("not reached; trying again"); } finally { isRefreshing = false; }
};

const listen = () => {
  if (source || +main.dataset.tip || !$("#say")) return;
  source = new EventSource(`${main.dataset.api}/events?after=${main.dataset.n}`);
  source.addEventListener("msg", refresh);
  for (const kind of ["sum", "trunc", "head"]) {
    source.addEventListener(kind, () => tell("the history was changed; reload to see it"));
  }
  source.addEventListener("deleted", () => { source.close(); tell("deleted"); });
  source.addEventListener("open", () => tell(""));
  source.addEventListener("error", () => tell(source.readyState === EventSource.CLOSED ? "not following" : "connecting"));
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
    if (name === "called") { answer.textContent = ""; doing.textContent = `${data.call.function?.name ?? "tool"} …`; }
    if (name === "returned") doing.textContent = "…";
    if (name === "problem") throw new Error(data.detail);
    listen();
    if (follows) scroller.toEnd();
  };
  try {
    const response = await fetch(`${main.dataset.api}/messages`, {
      method: "POST",
      headers: {"content-type": "application/json", "idempotency-key": form.id.value},
      body: JSON.stringify({content, stream: true}),
    });
    if (!response.ok) throw new Error((await response.json()).detail);
    for await (const event of events(response.body)) hear(event);
    form.id.value = crypto.randomUUID().replaceAll("-", "");
    await refresh();
    live.textContent = "";
    if (location.pathname === "/new") history.replaceState(null, "", main.dataset.page);
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
  if (since) all("#transcript article").find(one => +one.id > since)?.classList.add("unseen");
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
  $("#stop")?.addEventListener("click", () => fetch(`${main.dataset.api}/stop`, {method: "POST"}));
  if (!calm.matches) document.documentElement.classList.add("moves");
}
