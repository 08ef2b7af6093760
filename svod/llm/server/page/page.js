// The chat page: conversations are kept in the browser, answers come as a stream of events.
// Texts of the model and of the user only ever become text nodes.
"use strict";

const NUMBERS = [
  ["temperature", "Temperature", 0.7, 0, 2, 0.05], ["top_p", "Top p", 1, 0.01, 1, 0.01],
  ["top_k", "Top k", 0, 0, 1000, 1], ["min_p", "Min p", 0.05, 0, 1, 0.01],
  ["repetition_penalty", "Repetition penalty", 1, 0.5, 2, 0.01],
  ["dry_multiplier", "DRY", 0, 0, 5, 0.1], ["xtc_probability", "XTC", 0, 0, 1, 0.05],
  ["max_tokens", "Longest answer", "", 1, 100000, 1], ["seed", "Seed", "", 0, 2 ** 31, 1],
];
const TRIES = ["Hello!", "Tell me a story about a fox.", "Count from 3 to 9.", "Spell window."];
const $ = (id) => document.getElementById(id);
const element = (tag, options = {}, ...inside) => {
  const made = Object.assign(document.createElement(tag), options);
  made.append(...inside);
  return made;
};

let conversations = stored("conversations", []);
let current = stored("current", null);
let settings = stored("settings", {});
let running = null; // { abort, conversation }
let editing = null; // index of the message that is edited

function stored(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`svod-${name}`)) ?? fallback;
  } catch {
    return fallback;
  }
}

function store() {
  try {
    for (const [name, value] of Object.entries({ conversations, current, settings })) {
      localStorage.setItem(`svod-${name}`, JSON.stringify(value));
    }
  } catch {
    $("state").textContent = "the browser keeps nothing more";
  }
}

const open_ = () => conversations.find((c) => c.id === current);

function begin() {
  const last = conversations[0];
  if (last && !last.messages.length) {
    current = last.id;
  } else {
    current = `${Date.now()}-${Math.random().toString(36).slice(2, 8)}`;
    conversations.unshift({ id: current, title: "", messages: [] });
  }
  editing = null;
  store();
  show();
  $("text").focus();
}

function showList() {
  $("conversations").replaceChildren(...conversations.map((c) => {
    const title = c.title || "New conversation";
    const item = element("li", { className: c.id === current ? "current" : "" },
      element("button", {
        className: "open", textContent: title, title,
        onclick: () => { current = c.id; editing = null; menu(false); store(); show(); },
      }),
      element("button", {
        className: "drop", textContent: "×", ariaLabel: `Delete ${title}`, onclick: () => drop(c),
      }));
    return item;
  }));
}

function drop(conversation) {
  if (running?.conversation === conversation) running.abort.abort();
  conversations = conversations.filter((c) => c !== conversation);
  if (current === conversation.id) current = conversations[0]?.id ?? null;
  if (!conversations.length) return begin();
  store();
  show();
}

// Fences of three backticks become blocks, single backticks code; everything else is text.
function written(text) {
  const parts = [];
  text.split(/^```.*\n?/m).forEach((block, n) => {
    if (n % 2) {
      parts.push(element("pre", {}, element("code", { textContent: block.replace(/\n$/, "") })));
    } else {
      block.split(/`([^`\n]+)`/).forEach((piece, k) => {
        if (k % 2) parts.push(element("code", { textContent: piece }));
        else if (piece) parts.push(document.createTextNode(piece));
      });
    }
  });
  return parts;
}

function messageElement(conversation, index) {
  const message = conversation.messages[index];
  const isLast = index === conversation.messages.length - 1;
  const isRunning = running?.conversation === conversation;
  const box = element("article", { className: `message ${message.role}` });
  if (editing === index) {
    const text = element("textarea", { className: "edit", value: message.content, ariaLabel: "Edit" });
    text.onkeydown = (event) => {
      if (event.key === "Escape") { event.stopPropagation(); editing = null; show(); }
      if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); edited(index, text.value); }
    };
    box.append(text, element("div", { className: "tools" },
      element("button", { textContent: "Send", onclick: () => edited(index, text.value) }),
      element("button", { textContent: "Cancel", onclick: () => { editing = null; show(); } })));
    requestAnimationFrame(() => text.focus());
    return box;
  }
  const body = element("div", { className: "body" });
  body.append(...written(message.content));
  if (message.error) body.append(element("div", { className: "wrong", textContent: message.error }));
  const tools = element("div", { className: "tools" });
  if (message.role === "user") {
    tools.append(element("button", {
      textContent: "Edit", disabled: Boolean(running), onclick: () => { editing = index; show(); },
    }));
  } else {
    if (isRunning && isLast) box.classList.add("waiting");
    tools.append(element("button", {
      textContent: "Copy", onclick: () => navigator.clipboard?.writeText(message.content),
    }));
    if (isLast && !isRunning) {
      tools.append(element("button", {
        textContent: "Retry", disabled: Boolean(running), onclick: () => retry(),
      }));
    }
    if (message.note) tools.append(element("span", { className: "rate", textContent: message.note }));
  }
  box.append(body, tools);
  return box;
}

function show() {
  showList();
  const conversation = open_();
  const box = $("messages");
  const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
  if (!conversation.messages.length) {
    box.replaceChildren(element("div", { className: "empty" },
      element("p", { textContent: "Say something to begin." }),
      element("div", { className: "tries" }, ...TRIES.map((textContent) =>
        element("button", { textContent, onclick: () => say(textContent) })))));
  } else {
    box.replaceChildren(...conversation.messages.map((_, n) => messageElement(conversation, n)));
    if (isAtEnd || running) box.scrollTop = box.scrollHeight;
  }
  $("send").hidden = Boolean(running);
  $("stop").hidden = !running;
}

function edited(index, text) {
  const conversation = open_();
  editing = null;
  if (!text.trim() || running) return show();
  conversation.messages.length = index;
  say(text);
}

function retry() {
  const conversation = open_();
  if (running || !conversation) return;
  while (conversation.messages.at(-1)?.role === "assistant") conversation.messages.pop();
  answer(conversation);
}

function say(text) {
  const conversation = open_();
  if (running || !text.trim()) return;
  conversation.messages.push({ role: "user", content: text.trim() });
  conversation.title ||= text.trim().slice(0, 60);
  conversations = [conversation, ...conversations.filter((c) => c !== conversation)];
  answer(conversation);
}

function body(conversation) {
  const messages = conversation.messages.map(({ role, content }) => ({ role, content }));
  if (settings.system) messages.unshift({ role: "system", content: settings.system });
  const found = { messages, stream: true, stream_options: { include_usage: true } };
  for (const [name, , start] of NUMBERS) {
    const value = settings[name] ?? start;
    if (value !== "") found[name] = Number(value);
  }
  return found;
}

function headers() {
  const found = { "content-type": "application/json" };
  if (settings.key) found.authorization = `Bearer ${settings.key}`;
  return found;
}

async function answer(conversation) {
  const abort = new AbortController();
  const asked = body(conversation);
  const message = { role: "assistant", content: "", note: "" };
  conversation.messages.push(message);
  running = { abort, conversation };
  show();
  let count = 0, first = 0, last = 0;
  try {
    const response = await fetch("v1/chat/completions", {
      method: "POST", headers: headers(), body: JSON.stringify(asked), signal: abort.signal,
    });
    if (!response.ok) {
      const found = await response.json().catch(() => null);
      throw new Error(found?.error?.message ?? `the server answers ${response.status}`);
    }
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      const choice = event.choices?.[0];
      if (event.usage) count = event.usage.completion_tokens;
      if (choice?.delta?.content) {
        last = performance.now();
        first ||= last;
        count += 1;
        message.content += choice.delta.content;
        update(conversation, message);
      }
      if (choice?.finish_reason === "length") message.cut = true;
    }
  } catch (error) {
    if (abort.signal.aborted) message.note = "stopped";
    else message.error = error.message;
  }
  const seconds = (last - first) / 1000;
  const rate = count > 1 && seconds > 0 ? `${((count - 1) / seconds).toFixed(1)} tokens/s` : "";
  const notes = [message.note, count ? `${count} tokens` : "", rate, message.cut ? "cut at the limit" : ""];
  message.note = notes.filter(Boolean).join(" · ");
  running = null;
  store();
  show();
}

let isDrawn = true;
function update(conversation, message) {
  if (current !== conversation.id || !isDrawn) return;
  isDrawn = false;
  requestAnimationFrame(() => {
    isDrawn = true;
    const bodies = $("messages").querySelectorAll(".message .body");
    if (current !== conversation.id || running?.conversation !== conversation || !bodies.length) return;
    const box = $("messages");
    const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
    bodies[bodies.length - 1].replaceChildren(...written(message.content));
    if (isAtEnd) box.scrollTop = box.scrollHeight;
  });
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    held += value;
    const lines = held.split("\n");
    held = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      if (line === "data: [DONE]") return;
      yield JSON.parse(line.slice(6));
    }
  }
}

function menu(isOpen) {
  document.body.classList.toggle("menu", isOpen);
  $("menu").setAttribute("aria-expanded", String(isOpen));
}

function fit() {
  $("text").style.height = "auto";
  $("text").style.height = `${$("text").scrollHeight + 2}px`;
}

function fillSettings() {
  $("system").value = settings.system ?? "";
  $("key").value = settings.key ?? "";
  $("numbers").replaceChildren(...NUMBERS.map(([name, label, start, min, max, step]) =>
    element("label", {}, label, element("input", {
      type: "number", id: `set-${name}`, min, max, step, value: settings[name] ?? start,
      placeholder: start === "" ? "any" : String(start),
    }))));
}

function readSettings() {
  settings = { system: $("system").value.trim(), key: $("key").value.trim() };
  for (const [name, , start] of NUMBERS) {
    const input = $(`set-${name}`);
    const isRight = input.value !== "" && input.checkValidity();
    settings[name] = isRight ? Number(input.value) : start;
  }
  store();
  about();
}

async function about() {
  try {
    const response = await fetch("v1/models", { headers: headers() });
    if (response.status === 401) throw new Error("the server wants a key: see Settings");
    const model = (await response.json()).data[0];
    $("model").textContent = model.id;
    $("state").textContent = `${model.context} tokens of context`;
    document.title = `${model.id} – Svod`;
  } catch (error) {
    $("model").textContent = "no model";
    $("state").textContent = error.message;
  }
}

$("ask").onsubmit = (event) => {
  event.preventDefault();
  const text = $("text").value;
  if (running || !text.trim()) return;
  $("text").value = "";
  fit();
  say(text);
};
$("text").oninput = fit;
$("text").onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("ask").requestSubmit();
  } else if (event.key === "ArrowUp" && !$("text").value && !running) {
    const last = open_().messages.findLastIndex((m) => m.role === "user");
    if (last >= 0) { event.preventDefault(); editing = last; show(); }
  }
};
$("stop").onclick = () => running?.abort.abort();
$("new").onclick = () => { menu(false); begin(); };
$("menu").onclick = () => menu(!document.body.classList.contains("menu"));
document.querySelector("main").addEventListener("click", (event) => {
  if (event.target.id !== "menu") menu(false);
});
$("open-settings").onclick = () => { fillSettings(); $("settings").showModal(); };
$("settings").onclose = readSettings;
$("reset").onclick = () => { settings = { key: $("key").value }; fillSettings(); };
document.onkeydown = (event) => {
  if (event.key === "Escape" && !$("settings").open) { running?.abort.abort(); menu(false); }
  if (event.altKey && event.code === "KeyN") { event.preventDefault(); begin(); }
  if (event.altKey && event.code === "KeyS" && !$("settings").open) {
    event.preventDefault();
    $("open-settings").click();
  }
};

if (!open_()) current = conversations[0]?.id ?? null;
if (!open_()) begin();
show();
about();
