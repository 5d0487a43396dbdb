// A page of a running training: each time the server says that it has changed, its content is fetched again.

const main = document.querySelector("main");
const events = new EventSource("events");

events.onmessage = async () => {
  const answer = await fetch(location.href);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const unfolded = [...main.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent);
  for (const summary of page.querySelectorAll("main details > summary")) {
    summary.parentElement.open = unfolded.includes(summary.textContent);
  }
  main.replaceChildren(...page.querySelector("main").childNodes);
};

events.addEventListener("ended", () => {
  events.close();
  document.getElementById("state").textContent = "Training has ended; its report is report.html of the run.";
});
