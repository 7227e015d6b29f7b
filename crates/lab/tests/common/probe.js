// Looks into the frame beside it and writes what it finds into the title.
const frame = document.querySelector("iframe");

const count = (page, selector) => page.querySelectorAll(selector).length;

// Within half a pixel is no overlap: fonts differ.
const apart = (a, b) => a.right < b.left + 0.5 || b.right < a.left + 0.5 || a.bottom < b.top + 2 || b.bottom < a.top + 2;

function labels(svg) {
  return [...svg.querySelectorAll("text")].map((text) => ({ words: text.textContent, box: text.getBoundingClientRect() }));
}

function overlapping(svg) {
  const all = labels(svg);
  const pairs = all.flatMap((one, at) => all.slice(at + 1).map((other) => [one, other]));
  return pairs.filter(([one, other]) => !apart(one.box, other.box)).map(([one, other]) => `${one.words} / ${other.words}`);
}

function clipped(svg) {
  const edge = svg.getBoundingClientRect();
  const out = ({ box }) => box.left < edge.left - 1 || box.right > edge.right + 1 || box.bottom > edge.bottom + 1;
  return labels(svg).filter(out).map(({ words }) => words);
}

function smallest(page) {
  const sizes = [...page.querySelectorAll("svg text")].map((text) => {
    const svg = text.ownerSVGElement;
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    return parseFloat(getComputedStyle(text).fontSize) * scale;
  });
  return Math.min(99, ...sizes);
}

// WCAG 2: relative luminance.
function luminance(colour) {
  const [r, g, b] = colour.match(/[\d.]+/g).map((part) => part / 255)
    .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function behind(element) {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (!colour.startsWith("rgba(") || !colour.endsWith(" 0)")) return colour;
  }
  return "rgb(255, 255, 255)";
}

// The faintest text of the page.
function contrast(page) {
  const written = [...page.querySelectorAll("body *")].filter((one) =>
    [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()));
  const ratios = written.filter((one) => !["title", "STYLE", "SCRIPT"].includes(one.tagName)).map((one) => {
    const style = getComputedStyle(one);
    const ink = luminance(one.tagName === "text" ? style.fill : style.color);
    const paper = luminance(behind(one));
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  });
  return Math.min(21, ...ratios);
}

frame.addEventListener("load", () => {
  const page = frame.contentDocument;
  const inside = frame.contentWindow;
  const drawings = [...page.querySelectorAll("svg:not([aria-hidden])")];
  document.title = JSON.stringify({
    width: inside.innerWidth,
    scroll: page.documentElement.scrollWidth,
    loaded: inside.performance.getEntriesByType("resource").filter((one) => one.responseStatus).length,
    overlapping: drawings.flatMap(overlapping),
    clipped: drawings.flatMap(clipped),
    nameless: drawings.filter((svg) => !svg.getAttribute("aria-label")).map((svg) => svg.outerHTML.slice(0, 60)),
    smallest: smallest(page),
    contrast: contrast(page),
    paper: inside.getComputedStyle(page.body).backgroundColor,
    boxes: count(page, "#spread .box"),
    hollow: count(page, "#spread .hollow"),
    percentiles: count(page, "#percentiles .curve"),
    series: count(page, ".against .curve"),
    bars: count(page, "#cpu figure svg"),
    verdicts: count(page, ".verdicts .verdict"),
  });
});
