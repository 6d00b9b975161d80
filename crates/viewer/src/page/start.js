// Loads the page's parts. Browsers give up what they are loading whenever an interface of the machine comes or goes, and those of
// sandboxes do all the time; then the page is loaded again, a few times.

const TRIES = "sandcove-view-tries";

import("/main.js").then(
  () => sessionStorage.removeItem(TRIES),
  (error) => {
    const tries = Number(sessionStorage.getItem(TRIES)) + 1;
    sessionStorage.setItem(TRIES, String(tries));
    if (tries < 5) setTimeout(() => location.reload(), 300 * tries);
    else document.getElementById("name").textContent = `The page could not be loaded: ${error.message}`;
  },
);
