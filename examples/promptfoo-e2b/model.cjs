// Answers that a model might give. A provider for promptfoo is a class with `id` and `callApi`.
const answers = {
  factorial: `def factorial(n):
    result = 1
    for factor in range(2, n + 1):
        result *= factor
    return result`,
  is_palindrome: `def is_palindrome(text):
    folded = text.casefold()
    return folded == folded[::-1]`,
  square_root: `import math

def square_root(number):
    if number < 0:
        raise ValueError("a negative number has no real root")
    return math.sqrt(number)`,
}

module.exports = class Rehearsed {
  id() {
    return 'rehearsed'
  }

  async callApi(prompt, context) {
    const code = answers[context.vars.function_name]
    return code ? { output: 'Here it is:\n\n```python\n' + code + '\n```\n' } : { error: 'not rehearsed' }
  }
}
