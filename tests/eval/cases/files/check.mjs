export default (output) => output.length / 10
