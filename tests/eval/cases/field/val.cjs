module.exports.named = (o) => o
