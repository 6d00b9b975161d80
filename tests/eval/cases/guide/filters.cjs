module.exports = (text, times = 2) => String(text).repeat(times)
