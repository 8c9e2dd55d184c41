// Shows /openapi.json, and sends requests. Texts are inserted as text, never as HTML.
"use strict";

function make(tag, attributes = {}, ...children) {
  const node = Object.assign(document.createElement(tag), attributes);
  node.append(...children);
  return node;
}

const note = (text) => make("span", { className: "note" }, text);

const nameIn = (reference) => reference.split("/").pop();

// The only markup in descriptions is backticks for code.
function prose(text = "") {
  const parts = text.split("`");
  return make("span", {}, ...parts.map((part, at) => (at % 2 ? make("code", {}, part) : part)));
}

// The type of a schema in one line, with links to the named schemas.
function typeOf(schema) {
  if (schema.$ref) {
    const name = nameIn(schema.$ref);
    return make("a", { href: `#schema-${name}` }, name);
  }
  const parts = [];
  if (schema.anyOf) schema.anyOf.forEach((one, at) => parts.push(at ? " or " : "", typeOf(one)));
  else if (schema.enum) parts.push(schema.enum.map((value) => JSON.stringify(value)).join(" or "));
  else if (schema.type === "array") parts.push("list of ", typeOf(schema.items));
  else if (schema.additionalProperties) parts.push("map to ", typeOf(schema.additionalProperties));
  else parts.push(schema.type ?? "anything");
  return make("span", {}, ...parts);
}

// An example value: all fields of the top level, and only required fields below.
function sample(schema, schemas, top = true) {
  if (schema.$ref) return sample(schemas[nameIn(schema.$ref)], schemas, top);
  if (schema.anyOf) return sample(schema.anyOf[0], schemas, top);
  if (schema.enum) return schema.enum[0];
  if (schema.type === "array") return [sample(schema.items, schemas, false)];
  if (schema.properties) {
    const fields = Object.entries(schema.properties);
    const shown = fields.filter(([name]) => top || schema.required.includes(name));
    return Object.fromEntries(shown.map(([name, one]) => [name, sample(one, schemas, false)]));
  }
  return { string: "", integer: 0, boolean: false, object: {} }[schema.type] ?? null;
}

// The path and the query may have parameters with the same name.
const inputName = (parameter) => `${parameter.in} ${parameter.name}`;

function inputFor(parameter) {
  const { schema, required = false, example = "" } = parameter;
  const common = { name: inputName(parameter), required };
  const values = schema.type === "boolean" ? ["true", "false"] : schema.enum;
  if (values) {
    const options = required ? values : ["", ...values];
    return make("select", common, ...options.map((value) => make("option", {}, value)));
  }
  if (schema.type === "array") return make("textarea", { ...common, rows: 2 });
  const type = schema.type === "integer" ? "number" : "text";
  return make("input", { ...common, type, value: example, autocomplete: "off", spellcheck: false });
}

function labelled(name, notes, ...rest) {
  const shownNotes = note(` (${notes.filter(Boolean).join(", ")}) `);
  return make("label", { className: "field" }, make("code", {}, name), shownNotes, ...rest);
}

function field(parameter) {
  const list = parameter.schema.type === "array" && "one per line";
  const notes = [parameter.in, parameter.required && "required", list];
  return labelled(parameter.name, notes, prose(parameter.description), inputFor(parameter));
}

// The request in the form, as arguments of fetch.
function requestOf(method, path, operation, form) {
  const headers = {};
  const query = new URLSearchParams();
  let url = path;
  for (const parameter of operation.parameters) {
    const { value } = form.elements.namedItem(inputName(parameter));
    if (parameter.in === "path") {
      url = url.replace(`{${parameter.name}}`, () => encodeURIComponent(value));
    } else if (parameter.in === "header") {
      if (value) headers[parameter.name] = value;
    } else {
      const values = parameter.schema.type === "array" ? value.split("\n") : [value];
      values.filter(Boolean).forEach((one) => query.append(parameter.name, one));
    }
  }
  const options = { method: method.toUpperCase(), headers };
  if (operation.requestBody) {
    headers["Content-Type"] = "application/json";
    options.body = form.elements.namedItem("body").value;
  }
  return [String(query) ? `${url}?${query}` : url, options];
}

async function send(url, options, output) {
  const lines = [`${options.method} ${url}`];
  output.hidden = false;
  output.textContent = "…";
  try {
    const response = await fetch(url, options);
    const text = await response.text();
    const tag = response.headers.get("ETag");
    lines.push(`${response.status} ${response.statusText}`, ...(tag ? [`ETag: ${tag}`] : []), "");
    const isJson = response.headers.get("Content-Type")?.startsWith("application/json");
    lines.push(isJson && text ? JSON.stringify(JSON.parse(text), null, 2) : text);
  } catch (problem) {
    lines.push(String(problem));
  }
  output.textContent = lines.join("\n");
}

function tryIt(method, path, operation, components) {
  const output = make("pre", { hidden: true });
  const form = make("form", {}, ...operation.parameters.map(field));
  const body = operation.requestBody?.content["application/json"].schema;
  if (body) {
    const value = JSON.stringify(sample(body, components.schemas), null, 2);
    const input = make("textarea", { name: "body", rows: 12, value });
    form.append(labelled("body", ["required"], typeOf(body), input));
  }
  form.append(make("button", {}, "Send"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(...requestOf(method, path, operation, form), output);
  });
  return [form, output];
}

function responses(operation, components) {
  const list = make("dl");
  for (const [status, declared] of Object.entries(operation.responses)) {
    const response = declared.$ref ? components.responses[nameIn(declared.$ref)] : declared;
    const schema = response.content?.["application/json"].schema;
    const type = schema ? [" ", typeOf(schema)] : [];
    list.append(make("dt", {}, status), make("dd", {}, prose(response.description), ...type));
  }
  return list;
}

function operationBox(method, path, operation, components) {
  const shownMethod = make("span", { className: "method" }, method.toUpperCase());
  const shownPath = make("span", { className: "path" }, path);
  const summary = make("summary", {}, shownMethod, shownPath, " ", note(operation.summary));
  const box = make("details", { id: operation.operationId }, summary);
  const fill = () =>
    box.append(...tryIt(method, path, operation, components), responses(operation, components));
  box.addEventListener("toggle", fill, { once: true }); // Most are never opened.
  return box;
}

function schemaBox(name, schema) {
  const fields = make("dl");
  for (const [field, type] of Object.entries(schema.properties ?? {})) {
    const absent = schema.required.includes(field) ? "" : note(" (may be absent)");
    fields.append(make("dt", {}, field), make("dd", {}, typeOf(type), absent));
  }
  const summary = make("summary", {}, make("code", {}, name));
  const text = make("p", {}, prose(schema.description));
  const shown = schema.properties ? fields : typeOf(schema);
  return make("details", { id: `schema-${name}` }, summary, text, shown);
}

// Following a link to a folded section unfolds it.
function unfold() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.tagName === "DETAILS") target.open = true;
  target?.scrollIntoView();
}

async function show(content) {
  const { info, tags, paths, components } = await (await fetch("/openapi.json")).json();
  content.append(make("p", {}, note(`${info.title} ${info.version}`)));
  content.append(...info.description.split("\n\n").map((text) => make("p", {}, prose(text))));
  for (const tag of tags) {
    content.append(make("h2", { id: tag.name }, tag.name), make("p", {}, prose(tag.description)));
    for (const [path, methods] of Object.entries(paths))
      for (const [method, operation] of Object.entries(methods))
        if (operation.tags.includes(tag.name))
          content.append(operationBox(method, path, operation, components));
  }
  content.append(make("h2", { id: "schemas" }, "Schemas"));
  const schemas = Object.entries(components.schemas);
  content.append(...schemas.map(([name, schema]) => schemaBox(name, schema)));
  addEventListener("hashchange", unfold);
  unfold();
}

const content = document.getElementById("content");
show(content).catch((problem) => content.append(`/openapi.json cannot be shown: ${problem}`));
