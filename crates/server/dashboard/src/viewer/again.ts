// Stored runs are run again by `sandcove view` only: it has the suites.
export const again = (): void => undefined;
