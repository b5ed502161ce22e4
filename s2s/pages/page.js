"use strict";
// Without this script the links and the tabs work too; with it, what belongs together lights up.
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  const panes = document.querySelector(".panes");
  if (panes) linkLines(panes);
  const filter = document.getElementById("filter");
  if (filter) findFunctions(filter);

  function linkLines(panes) {
    const shown = (element) => element.getClientRects().length > 0;
    const rowsOf = (line) =>
      [...panes.querySelectorAll(`.row[data-line="${line}"]`)].filter(shown);

    function light(row) {
      for (const lit of panes.querySelectorAll(".on")) lit.classList.remove("on");
      if (row && row.dataset.line) for (const one of rowsOf(row.dataset.line)) one.classList.add("on");
    }
    const current = () => {
      const element = document.activeElement;
      return panes.contains(element) ? element.closest(".row") : null;
    };
    panes.addEventListener("mouseover", (event) => {
      const row = event.target.closest(".row");
      if (row) light(row);
    });
    panes.addEventListener("mouseleave", () => light(current()));
    panes.addEventListener("focusin", (event) => light(event.target.closest(".row")));

    const linkIn = (row) => row && [...row.querySelectorAll(".gutter a")].find(shown);
    const linked = (pane) => [...pane.querySelectorAll(".gutter a")].filter(shown);

    // one line of each side can be reached with Tab; the arrows lead to the others
    function rove(pane, chosen) {
      for (const link of pane.querySelectorAll(".gutter a")) link.tabIndex = -1;
      const link = chosen || linked(pane)[0];
      if (link) link.tabIndex = 0;
    }
    const sides = [...panes.querySelectorAll(".pane")];
    const start = () => sides.forEach((pane) => rove(pane));
    start();
    for (const input of document.querySelectorAll(".choice")) input.addEventListener("change", start);

    function go(link) {
      if (!link) return;
      rove(link.closest(".pane"), link);
      link.focus({ preventScroll: true });
      link.closest(".row").scrollIntoView({ block: "nearest" });
    }
    function across(row) {
      const other = sides.find((pane) => !pane.contains(row));
      if (other) go(linkIn(rowsOf(row.dataset.line).find((one) => other.contains(one))));
    }
    panes.addEventListener("keydown", (event) => {
      const row = current();
      if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
      const pane = row.closest(".pane");
      const links = linked(pane);
      const index = links.indexOf(document.activeElement);
      if (event.key === "ArrowDown") go(links[index + 1]);
      else if (event.key === "ArrowUp") go(links[index - 1]);
      else if (event.key === "ArrowRight" && pane === sides[0]) across(row);
      else if (event.key === "ArrowLeft" && pane === sides[1]) across(row);
      else return;
      event.preventDefault();
    });
    panes.addEventListener("click", (event) => {
      const link = event.target.closest(".gutter a");
      if (!link) return;
      event.preventDefault();
      history.replaceState(null, "", link.hash);
      across(link.closest(".row"));
    });
  }

  function findFunctions(filter) {
    const rows = [...document.querySelectorAll(".functions li")];
    const files = [...document.querySelectorAll(".file")];
    const found = document.getElementById("found");
    filter.closest(".filter").hidden = rows.length < 8;
    filter.addEventListener("input", () => {
      const wanted = filter.value.trim().toLowerCase();
      for (const file of files) {
        const path = file.querySelector("h2").textContent.toLowerCase();
        let any = !wanted;
        for (const row of file.querySelectorAll(".functions li")) {
          const name = row.querySelector("a").textContent.toLowerCase();
          row.hidden = !(`${path} ${name}`.includes(wanted));
          any ||= !row.hidden;
        }
        file.hidden = !any;
      }
      const left = rows.filter((row) => !row.hidden).length;
      found.textContent = wanted ? `${left} of ${rows.length}` : "";
    });
  }
})();
