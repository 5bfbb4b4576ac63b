document.documentElement.classList.add("js");
for (const filter of document.querySelectorAll(".filter")) {
  const [word, state] = [filter.querySelector("input"), filter.querySelector("select")];
  const rows = filter.parentElement.querySelectorAll("tbody tr");
  const apply = () => {
    for (const row of rows) {
      const has = row.textContent.toLowerCase().includes(word.value.toLowerCase());
      row.hidden = !has || (state.value !== "" && row.dataset.state !== state.value);
    }
  };
  word.addEventListener("input", apply);
  state.addEventListener("change", apply);
}
