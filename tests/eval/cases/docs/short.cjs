module.exports = (output, { vars }) => ({ pass: output.length < 40, score: 1 / output.length, reason: `length for ${vars.name}` });
