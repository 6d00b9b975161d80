export default () => false
export const named = (output) => output === "abc"
