// Hands clicks on elements that are marked with data-do to the server, which draws the page anew.
let count = 0;
document.addEventListener("click", (event) => {
  const marked = event.composedPath().find((node) => node.dataset && node.dataset.do);
  if (!marked || !window.Bokeh || !Bokeh.documents.length) return;
  const inbox = Bokeh.documents[0].get_model_by_name("inbox");
  if (inbox) inbox.value = `${++count} ${marked.dataset.do}`;
});
