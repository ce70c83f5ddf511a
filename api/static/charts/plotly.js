// plotly, loaded when the first chart is drawn: its file is large, and a table of jobs is there before it.

let loading = null;

export function plotly() {
  loading ??= load();
  return loading;
}

function load() {
  tellThatMapsAreStyled();
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = document.documentElement.dataset.plotly;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      loading = null;
      script.remove();
      reject(new Error("the chart library could not be loaded"));
    };
    document.head.append(script);
  });
}

// plotly's maps, which nobody draws here, bring a <style> that the content security policy refuses with an error. They
// leave it out where an element with its id is there already.
function tellThatMapsAreStyled() {
  const mark = document.createElement("meta");
  mark.id = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";
  document.head.append(mark);
}

// Text as plotly shows it literally: what it takes for markup is escaped.
export const literal = (text) =>
  String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("$", "&#36;");
