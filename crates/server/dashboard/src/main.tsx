import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Router } from "wouter-preact";

import { type Account, account, actFor, whenLoggedOut } from "./api/client";
import { follow } from "./links";
import { Frame } from "./pages/frame";
import { Login } from "./pages/login";
import { message } from "./ui/format";
import { Failure } from "./ui/parts";
import { show } from "./ui/theme";

function App() {
  const [user, setUser] = useState<Account | null>();
  const [error, setError] = useState<string>();
  useEffect(() => {
    whenLoggedOut(() => {
      actFor(undefined);
      setUser(null);
    });
    account().then(setUser, (failure: unknown) => setError(message(failure)));
  }, []);
  if (error) return <main class="login"><Failure text={error} /></main>;
  if (user === undefined) return null;
  if (user === null) return <Login onLogin={setUser} />;
  return <Router base="/dashboard"><Frame account={user} /></Router>;
}

show();
follow();
const place = document.getElementById("app");
if (place) render(<App />, place);
