module.exports = () => ["a", "b"]
