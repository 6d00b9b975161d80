import { useEffect, useRef, useState } from "preact/hooks";

import { type Account, logIn } from "../api/client";
import { useAction, useTitle } from "../ui/hooks";
import { Failure } from "../ui/parts";

export function Login({ onLogin }: { onLogin: (account: Account) => void }) {
  const [credential, setCredential] = useState("");
  const { busy, error, act } = useAction();
  const field = useRef<HTMLInputElement>(null);
  useTitle("Log in");
  useEffect(() => field.current?.focus(), []);
  const submit = (event: Event) => {
    event.preventDefault();
    void act(async () => onLogin(await logIn(credential)));
  };
  return (
    <main class="login">
      <form onSubmit={submit}>
        <h1><img src="/dashboard/assets/icon.svg" alt="" width={36} height={36} /> Sandcove</h1>
        {/* Password managers want a name. */}
        <input type="text" name="username" autocomplete="username" value="sandcove" hidden readOnly />
        <label>
          API key, access token or admin token
          <input
            ref={field}
            type="password"
            name="credential"
            autocomplete="current-password"
            required
            value={credential}
            onInput={(event) => setCredential(event.currentTarget.value)}
          />
        </label>
        <Failure text={error} />
        <button type="submit" class="primary" disabled={busy}>Log in</button>
        <p class="quiet"><code>sandcove keys create NAME</code> prints a new key. The browser keeps a session, not the key.</p>
      </form>
    </main>
  );
}
