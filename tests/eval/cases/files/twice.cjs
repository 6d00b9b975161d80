module.exports = (text) => text + text
