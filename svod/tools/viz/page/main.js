// The page: its views, the plan that is chosen, keys, and the search.
state.views = [["overview", "Overview", overviewView], ["graph", "Graph", graphView], ["kernels", "Kernels", kernelsView], ["timeline", "Timeline", timelineView], ["memory", "Memory", memoryView], ["preparation", "Preparation", preparationView], ["compare", "Compare", compareView]];
async function planAt(place) {
  const held = state.data.plans[place];
  if (!held.ops) {
    const answer = await fetch(`plan/${held.id}`);
    if (!answer.ok) throw new Error(`the server says ${answer.status}`);
    Object.assign(held, await answer.json());
  }
  return held;
}
async function show() {
  note(null, null);
  const [name, ...rest] = (location.hash.slice(1) || "overview").split("/"), main = element("main", "", { id: "view", tabindex: "-1" });
  document.getElementById("view").replaceWith(main);
  const view = state.views.find(([one]) => one === name), current = name === "kernel" ? "kernels" : view ? name : "overview";
  document.getElementById("views").replaceChildren(...state.views.map(([one, title], number) => link(title, one, { class: one === current ? "here" : "", title: `key ${number + 1}`, "aria-current": one === current ? "page" : null })));
  try {
    await (name === "kernel" ? kernelView : view?.[2] ?? overviewView)(main, ...rest);
  } catch (problem) {
    console.error(problem);
    main.append(empty(`This could not be shown: ${problem.message}`));
  }
  document.body.dataset.view = location.hash;
}
async function choosePlan(place) {
  document.getElementById("view").replaceChildren(element("p", "reading the plan …", { class: "quiet" }));
  try {
    state.plan = prepared(await planAt(place));
  } catch (problem) {
    document.getElementById("view").replaceChildren(empty(`The plan could not be read: ${problem.message}. Is the program that serves it still there?`));
    return;
  }
  state.beside = null;
  await show();
}
async function listPlans() {
  const chooser = document.getElementById("plans"), { plans } = state.data;
  chooser.hidden = plans.length < 2;
  document.getElementById("name").hidden = plans.length > 1;
  document.getElementById("name").textContent = plans[0]?.title ?? "no plan yet";
  chooser.replaceChildren(...plans.map((plan, place) => element("option", plan.runs ? `${plan.title}, ${counted(plan.runs)} run${plan.runs === 1 ? "" : "s"}` : plan.title, { value: place })));
}
async function begin() {
  const held = document.getElementById("data"), chooser = document.getElementById("plans"), search = document.getElementById("search");
  state.from = held.dataset.from;
  if (state.from) state.data = await (await fetch(state.from)).json();
  else {
    const packed = Uint8Array.from(atob(held.textContent), letter => letter.charCodeAt(0));
    state.data = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
  }
  await listPlans();
  chooser.addEventListener("change", () => choosePlan(Number(chooser.value)));
  search.addEventListener("input", () => {
    state.search = search.value.trim().toLowerCase();
    const [name] = location.hash.slice(1).split("/");
    if (name === "graph") { state.graph.search(); return; }
    if (!["timeline", "memory", "preparation", "kernels"].includes(name)) history.replaceState(null, "", "#kernels");
    show();
  });
  window.addEventListener("hashchange", show);
  window.addEventListener("keydown", event => {
    if (event.target === search) {
      if (event.key === "Escape") { search.value = state.search = ""; search.blur(); show(); }
      else if (event.key === "Enter" && location.hash.startsWith("#graph")) { const found = state.graph.search(); if (found?.op) goto(`graph/${location.hash.split("/")[1] ?? "modules"}/${found.op.index}`); }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
    if (event.key === "/") { search.focus(); event.preventDefault(); }
    else if (event.key === "Escape") history.back();
    else if (event.key === "t") document.getElementById("theme").click();
    else if (state.views[Number(event.key) - 1]) goto(state.views[Number(event.key) - 1][0]);
  });
  const repaint = () => { themeColors.clear(); for (const canvas of document.querySelectorAll("canvas")) canvas.dispatchEvent(new Event("theme")); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement, isDark = getComputedStyle(root).colorScheme === "dark" || (getComputedStyle(root).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
    root.style.colorScheme = isDark ? "light" : "dark";
    repaint();
  });
  if (state.data.plans.length) await choosePlan(0);
  else document.getElementById("view").replaceChildren(empty("No plan has run yet. Load the page again when the program has computed something."));
  document.body.dataset.ready = "yes";
}
begin().catch(problem => { console.error(problem); document.getElementById("view").replaceChildren(empty(`The page has no data: ${problem.message}`)); });
