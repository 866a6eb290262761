// Tables and lists of facts.

import { byId, element } from "./box.js";
import { WORDS } from "./words.js";

// Makes the heads of a table from its columns: a name, a class, and what its cell holds of an item.
// Returns the function that shows items. `whole` may return what stands in place of all cells after
// the second one.
export function makeTable(id, columns, whole = () => null) {
  byId(id).tHead.rows[0].append(...columns.map(([name, className]) => {
    const head = explained(element("th", className, name), name);
    head.scope = "col";
    return head;
  }));
  let shown = "";
  return (items) => {
    // What stays the same stays, so that it can be selected.
    const now = JSON.stringify(items);
    if (now === shown) return;
    shown = now;
    byId(id).tBodies[0].replaceChildren(...items.map(rowOf));
  };

  function rowOf(item) {
    const row = element("tr");
    const instead = whole(item);
    row.append(...columns.slice(0, instead ? 2 : undefined).map(([name, className, show]) => {
      const cell = element("td", className);
      cell.dataset.name = name;
      cell.append(show(item));
      return cell;
    }));
    if (instead) {
      const cell = element("td", "reason", instead);
      cell.colSpan = columns.length - 2;
      row.append(cell);
    }
    return row;
  }
}

// Shows facts: names and values.
export function showFacts(id, facts) {
  byId(id).replaceChildren(...facts.map(([name, text]) => {
    const fact = explained(element("div"), name);
    fact.append(element("dt", "", name), element("dd", "", text));
    return fact;
  }));
}

// The element, with what `name` means, for those who hover.
export function explained(shown, name) {
  if (Object.hasOwn(WORDS, name)) shown.title = WORDS[name];
  return shown;
}

// A text with more to say for those who hover.
export function withTitle(text, title, className = "") {
  const made = element("span", className, text);
  made.title = title;
  return made;
}
