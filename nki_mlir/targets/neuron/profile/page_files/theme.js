// Light or dark: what the page around says, of a site or a notebook, else what the system prefers.
const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
const around = (() => { try { return parent === window ? null : parent.document.body; } catch { return null; } })();
function isDark() {
  const data = around ? around.dataset : {}, names = around ? around.className : "";
  if (data.theme === "dark" || data.jpThemeLight === "false" || /\bvscode-(dark|high-contrast)\b/.test(names)) return true;
  return !(data.theme === "light" || data.jpThemeLight === "true" || /\bvscode-light\b/.test(names)) && system.matches;
}
const drawings = [];            // functions that draw anew what has its colors from here
const themed = name => getComputedStyle(root).getPropertyValue("--" + name);
function setTheme(theme) {
  root.dataset.theme = theme;
  for (const draw of drawings) draw();
}
const follow = () => setTheme(isDark() ? "dark" : "light");
follow();
system.addEventListener("change", follow);
if (around) new MutationObserver(follow).observe(around, { attributes: true });
addEventListener("beforeprint", () => setTheme("light"));
addEventListener("afterprint", follow);
